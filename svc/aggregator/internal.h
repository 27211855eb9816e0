/* The aggregator process, for its own files only. */
#ifndef GRADPOOL_AGGREGATOR_INTERNAL_H
#define GRADPOOL_AGGREGATOR_INTERNAL_H

#include "svc/aggregator/aggregator.h"
#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"
#include "svc/lane/thread.h"
#include "svc/replica/holder.h"

#include <stdatomic.h>
#include <stdbool.h>

#define AGGREGATOR_LANES_MAX 256

struct aggregator {
    const struct aggregator_options *options;
    uint64_t incarnation; /* random: names this process in tickets */
    enum reduce_set kernels;
    enum lane_policy policy;
    uint32_t number; /* given by the coordinator; 0: none yet */
    struct endpoint coordinator;
    bool has_key; /* then the control connection speaks TLS with it */
    struct key key;
    char node[256];
    char host[256]; /* told to workers */
    struct cores *cores;
    struct lane_thread *lanes[AGGREGATOR_LANES_MAX];
    uint32_t lane_ids[AGGREGATOR_LANES_MAX]; /* service-wide */
    size_t lanes_count;
    struct channel *channel; /* NULL while the coordinator is away */
    int signal_fd;
    int failure_fd;            /* readable: a lane has a failed job to tell of */
    int moving_fd;             /* readable: something that a move waits for may have happened */
    atomic_bool memory_wanted; /* by a lane; moving_fd is readable */
    int keep_fd;               /* readable: the keeper has something to ask */
    struct holder *keeper;     /* of others' states; NULL: nothing was ever kept here */
    struct release *releases;  /* asked for and not answered, the newest first */
    char *state_buffer;        /* moving.c: a part of a state on its way; NULL: none has gone yet */
    struct copies_wait *copies_waits; /* likewise, whether copies are whole */
    struct ahead_wait *ahead_waits;   /* likewise, whether workers are connected */
    struct recording *recordings;     /* for timelines, the newest first */
    uint64_t away_due_ns; /* when a rank has had its time to connect again; 0: none is out */
    size_t stats_jobs;    /* the most jobs of a lane when figures were last sent */
    uint64_t leave_by_ns; /* a signal came: until then what is here moves; 0: none */
    bool is_draining;
    bool is_stale; /* the coordinator has given its work to others */
};

/* aggregator.c: ends all lanes, and forgets what waits for something of theirs; from then on there
 * is none to be called (A9). */
void aggregator_end_lanes(struct aggregator *a);

/* control.c: connects, joins (again). -ETIMEDOUT, -ECONNREFUSED, ...: try later. */
int control_join(struct aggregator *a, uint64_t deadline_ns, struct err *err);
/* Says goodbye, once the lanes are closed; a coordinator that does not answer is left without. */
void control_leave(struct aggregator *a);
/* Takes what the coordinator sent. Any error: the coordinator is away. */
int control_receive(struct aggregator *a);

/* serve.c: what each request does; answers it on the channel. */
int serve_request(struct aggregator *a, const envelope *request);
/* stats.c: what the lanes have counted, without rows that the request says are known; to
 * be freed like any message. NULL: no memory. */
Gradpool__Wire__StatsReply *stats_build(struct aggregator *a,
                                        const Gradpool__Wire__StatsRequest *request);

/* memory.c: pages that lanes will need (A73). */
struct memory_coming {
    uint32_t job, workers;
    const struct lane_piece *pieces; /* about to be placed on the lane */
    size_t count;
};
/* -ENOSPC: the memory cgroup has not so much left; `ret_text` says so. */
int memory_prepare(struct lane_thread *thread, const struct memory_coming *coming,
                   char ret_text[ERR_TEXT_BYTES]);
/* Gives back what placing them has left. */
void memory_forget(struct lane_thread *thread);
/* Memory that jobs on lanes wait for. */
void memory_serve_wishes(struct aggregator *a);

/* moving.c: pieces that go to another lane, or come from one. */
bool moving_knows(const envelope *request);
int moving_serve(struct aggregator *a, const envelope *request);
/* Pieces have come to rest: answers who waits for no other. Any error: the coordinator is away. */
int moving_rested(struct aggregator *a);
/* Releases that wait. */
size_t moving_waits(const struct aggregator *a);
/* How long until releases are to be looked at without news, as for poll(). */
int moving_timeout_ms(const struct aggregator *a);
/* Pieces were thawed or dropped, or a job has failed: answers who waits for them. */
int moving_recheck(struct aggregator *a);
/* Nobody is there to be answered; what is released stays so (M3). */
void moving_abandon(struct aggregator *a);

/* ahead.c: workers of pieces that are to come. */

/* Answers Done when they are connected and their memory is at hand, or after 3 s; Failure when the
 * job has failed or is gone. */
int ahead_await(struct aggregator *a, uint64_t id, uint32_t lane, uint32_t job);
/* Answers those whose time has come. Any error: the coordinator is away. */
int ahead_look(struct aggregator *a);
/* How long until they are to be looked at, as for poll(). */
int ahead_timeout_ms(const struct aggregator *a);
/* Nobody is there to be answered. */
void ahead_abandon(struct aggregator *a);

/* keeping.c: copies of states, here and of what is here. */
bool keeping_knows(const envelope *request);
int keeping_serve(struct aggregator *a, const envelope *request);
/* Asks what the keeper has to ask. Any error: the coordinator is away. */
int keeping_ask(struct aggregator *a);
/* How long until there may be something, as for poll(). */
int keeping_timeout_ms(const struct aggregator *a);
/* Lanes of others write copies here: without them their jobs would stand still. */
bool keeping_is_used(const struct aggregator *a);
/* Copies may be whole now, or what they are of is gone: answers who waits for that. Any error: the
 * coordinator is away. */
int keeping_copied(struct aggregator *a);
/* Nobody is there to be answered. */
void keeping_abandon(struct aggregator *a);
/* The coordinator is back, and knows nothing of what it was asked before. */
void keeping_joined(struct aggregator *a);

/* leaving.c: a planned end (A71). */

/* SIGTERM or the like: begins it, or ends the process at once. */
void leaving_signal(struct aggregator *a, uint32_t number);
/* Tells the coordinator how long this process still serves, if it is to end and the coordinator is
 * there: once more after each join. Any error: the coordinator is away. */
int leaving_tell(struct aggregator *a);
/* Ends the process when its time is over. */
void leaving_check(struct aggregator *a);
/* How long until then, as for poll(). */
int leaving_timeout_ms(const struct aggregator *a);
/* The sooner of the two. */
uint64_t leaving_deadline_ns(const struct aggregator *a, uint64_t deadline_ns);

/* away.c: ranks that may connect again to a lane (A70). Fails the jobs of those that had
 * their time; `has_news`: more may be away than when it was looked last. */
void away_look(struct aggregator *a, bool has_news);
/* How long until the next one has, as for poll(). */
int away_timeout_ms(const struct aggregator *a);

/* timeline.c: what lanes record of jobs' rounds. */
int timeline_serve(struct aggregator *a, uint64_t id, const Gradpool__Wire__TimelineTake *take);
/* Nobody fetches it any more: nothing is recorded from now on. */
void timeline_abandon(struct aggregator *a);
/* After the lanes have ended. */
void timeline_free(struct aggregator *a);

/* report.c */
/* Tells the coordinator of every job that has failed on a lane (A12). Any error: it is away. */
int serve_failures(struct aggregator *a);
/* Connections of all lanes together. */
size_t serve_connections(struct aggregator *a);
/* All jobs of all lanes fail, and their workers hear why. */
void serve_end_jobs(struct aggregator *a, int code, const char *text);
/* What the lanes serve now, as rows for AggregatorJoin; free each and the array with
 * serve_held_free(). */
int serve_held(struct aggregator *a, Gradpool__Wire__PieceHeld ***ret_rows, size_t *ret_count);
void serve_held_free(Gradpool__Wire__PieceHeld **rows, size_t count);

/* reply.c */

/* NULL: no lane has this number. */
struct lane_thread *serve_find_lane(struct aggregator *a, uint32_t id);
/* serve_answer(a, id, STATE_REPLY, state_reply, .data = data). Any error: the coordinator is
 * away. */
#define serve_answer(a, id, KIND, member, ...) \
    channel_send((a)->channel, &MESSAGE(id, KIND, member, __VA_ARGS__))
int serve_done(struct aggregator *a, uint64_t id);
/* Answers a request: Done, or Failure with the code's text or with `text`. */
int serve_reply(struct aggregator *a, uint64_t id, int result);
int serve_reply_failure(struct aggregator *a, uint64_t id, int code, const char *text);
/* Runs `call` on the lane of this number; -ENOENT: there is none. */
int serve_call(struct aggregator *a, uint32_t lane, int (*call)(struct lane *lane, void *context),
               void *context);

#endif
