/* The aggregator process, for its own files. All state belongs to the control thread, unless
 * noted. */
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
    uint32_t number; /* assigned by the coordinator; 0: none yet */
    struct endpoint coordinator;
    bool has_key; /* `key` is valid: the control connection uses TLS with it */
    struct key key;
    char node[256];
    char host[256]; /* this host's address for workers */
    struct cores *cores;
    struct lane_thread *lanes[AGGREGATOR_LANES_MAX];
    uint32_t lane_ids[AGGREGATOR_LANES_MAX]; /* numbers of the lanes in the service */
    size_t lanes_count;
    struct channel *channel; /* NULL while the coordinator is away */
    int signal_fd;
    int failure_fd; /* readable: a lane has a failed job or a lost rank to report */
    int moving_fd;  /* readable: moves, copies or wishes for memory have to be checked */
    /* set by a lane's thread that waits for memory; moving_fd is readable then */
    atomic_bool memory_wanted;
    int keep_fd;              /* readable: the replica holder has requests (holder_next_ask()) */
    struct holder *keeper;    /* replica holder of other aggregators' states; NULL: none so far */
    struct release *releases; /* releases without a reply, the newest first */
    char *state_buffer;       /* moving.c: buffer for a part of a moved state; NULL: none so far */
    struct copies_wait *copies_waits; /* pending replies that wait for whole copies */
    struct ahead_wait *ahead_waits;   /* pending replies that wait for workers */
    struct recording *recordings;     /* recordings for timelines, the newest first */
    uint64_t away_due_ns; /* end of the earliest time to connect again; 0: no rank is away */
    size_t stats_jobs;    /* most jobs of one lane in the last statistics */
    uint64_t leave_by_ns; /* a signal came: tasks and state may move until then; 0: no signal */
    bool is_draining;
    bool is_stale; /* the coordinator has given this process's tasks to others */
};

/* aggregator.c: ends all lanes, after the pending replies that call them (A9). */
void aggregator_end_lanes(struct aggregator *a);

/* control.c: connects and joins, also again. -ETIMEDOUT, -ECONNREFUSED, ...: the caller may try
 * again later. -ESTALE: the coordinator counts this process as lost. After an error a->channel is
 * NULL, unless the join succeeded and the channel broke then. */
int control_join(struct aggregator *a, uint64_t deadline_ns, struct err *err);
/* Says goodbye after the lanes have ended; waits a second for the answer. */
void control_leave(struct aggregator *a);
/* Receives and serves all waiting requests. -EAGAIN: no more; another error: the coordinator is
 * away. */
int control_receive(struct aggregator *a);

/* serve.c: serves a request and answers it on the channel. An error is that of the channel. */
int serve_request(struct aggregator *a, const envelope *request);
/* stats.c: counters of all lanes, without rows that the request declares known. To be freed with
 * free_unpacked(). NULL: no memory. */
Gradpool__Wire__StatsReply *stats_build(struct aggregator *a,
                                        const Gradpool__Wire__StatsRequest *request);

/* memory.c: memory with its pages, prepared for lanes (A73). */
struct memory_coming {
    uint32_t job, workers;
    const struct lane_piece *pieces; /* pieces that are about to be placed on the lane */
    size_t count;
};
/* Prepares memory for the pieces, as far as there is any. -ENOSPC: beyond the rest of the memory
 * cgroup; `ret_text` has the reason. */
int memory_prepare(struct lane_thread *thread, const struct memory_coming *coming,
                   char ret_text[ERR_TEXT_BYTES]);
/* Frees prepared memory that the placement did not use. */
void memory_forget(struct lane_thread *thread);
/* Prepares memory for which jobs on lanes wait. */
void memory_serve_wishes(struct aggregator *a);

/* moving.c: pieces that move to another lane, or come from one. */
bool moving_knows(const envelope *request);
int moving_serve(struct aggregator *a, const envelope *request);
/* Pieces may have come to rest: answers the releases that are complete. Any error: the coordinator
 * is away. */
int moving_rested(struct aggregator *a);
/* Number of releases without a reply. */
size_t moving_waits(const struct aggregator *a);
/* Time until releases have to be checked without an event, for poll(). */
int moving_timeout_ms(const struct aggregator *a);
/* Pieces were thawed or dropped, or a job has failed: answers the releases of these with an
 * error. */
int moving_recheck(struct aggregator *a);
/* The coordinator is away: drops the releases without a reply; released pieces stay released
 * (M3). */
void moving_abandon(struct aggregator *a);

/* ahead.c: readiness of the workers of pieces that are about to move here. */

/* Answers request `id` with Done once the workers are connected and their memory is warm, or after
 * 3 s; with Failure if the job fails or ends. */
int ahead_await(struct aggregator *a, uint64_t id, uint32_t lane, uint32_t job);
/* Checks the pending replies and sends the due ones. Any error: the coordinator is away. */
int ahead_look(struct aggregator *a);
/* Time until the next check, for poll(). */
int ahead_timeout_ms(const struct aggregator *a);
/* The coordinator is away: drops the pending replies. */
void ahead_abandon(struct aggregator *a);

/* keeping.c: copies of states: stored here for others, and of this process's own lanes. */
bool keeping_knows(const envelope *request);
int keeping_serve(struct aggregator *a, const envelope *request);
/* Sends the replica holder's requests for tickets. Any error: the coordinator is away. */
int keeping_ask(struct aggregator *a);
/* Time until the replica holder may have a request, for poll(). */
int keeping_timeout_ms(const struct aggregator *a);
/* True while lanes of other aggregators write copies here: their jobs could not continue without
 * this process. */
bool keeping_is_used(const struct aggregator *a);
/* Copies may be whole now, or their pieces gone: answers the requests that wait for that. Any
 * error: the coordinator is away. */
int keeping_copied(struct aggregator *a);
/* The coordinator is away: drops the pending replies. */
void keeping_abandon(struct aggregator *a);
/* The coordinator is back, without the requests of before: the replica holder sends them again. */
void keeping_joined(struct aggregator *a);

/* leaving.c: a planned end (A71). */

/* A signal: begins the planned end, or ends the process at once. */
void leaving_signal(struct aggregator *a, uint32_t number);
/* Sends the time that is left, if a planned end has begun and the coordinator is there: once more
 * after each join. Any error: the coordinator is away. */
int leaving_tell(struct aggregator *a);
/* Ends the process when the time is over. */
void leaving_check(struct aggregator *a);
/* Time until then, for poll(). */
int leaving_timeout_ms(const struct aggregator *a);
/* The earlier of `deadline_ns` and the end of the process's time. */
uint64_t leaving_deadline_ns(const struct aggregator *a, uint64_t deadline_ns);

/* away.c: ranks that may connect again to a lane (A70). Ends the wait for ranks whose time is over;
 * `has_news`: more ranks may be away than at the last check. */
void away_look(struct aggregator *a, bool has_news);
/* Time until the next wait ends, for poll(). */
int away_timeout_ms(const struct aggregator *a);

/* timeline.c: recordings of jobs' rounds on lanes. Begins, hands out or ends recordings, and
 * answers request `id`. */
int timeline_serve(struct aggregator *a, uint64_t id, const Gradpool__Wire__TimelineTake *take);
/* The coordinator is away: ends all recordings. */
void timeline_abandon(struct aggregator *a);
/* Frees all recordings, after the lanes have ended. */
void timeline_free(struct aggregator *a);

/* report.c */
/* Reports every job that has failed on a lane, and every lost rank (A12). Any error: the
 * coordinator is away. */
int serve_failures(struct aggregator *a);
/* Connections of all lanes together. */
size_t serve_connections(struct aggregator *a);
/* Fails all jobs of all lanes; their workers get `code` and `text`. */
void serve_end_jobs(struct aggregator *a, int code, const char *text);
/* Pieces on all lanes, as rows for AggregatorJoin; the caller frees them with serve_held_free(). */
int serve_held(struct aggregator *a, Gradpool__Wire__PieceHeld ***ret_rows, size_t *ret_count);
void serve_held_free(Gradpool__Wire__PieceHeld **rows, size_t count);

/* reply.c */

/* NULL: no lane has this number. */
struct lane_thread *serve_find_lane(struct aggregator *a, uint32_t id);
/* For example serve_answer(a, id, STATE_REPLY, state_reply, .data = data). Any error: the
 * coordinator is away. */
#define serve_answer(a, id, KIND, member, ...) \
    channel_send((a)->channel, &MESSAGE(id, KIND, member, __VA_ARGS__))
int serve_done(struct aggregator *a, uint64_t id);
/* Answers a request: Done, or Failure with the text of the errno value or with `text`. Errors of
 * serve_answer(). */
int serve_reply(struct aggregator *a, uint64_t id, int result);
int serve_reply_failure(struct aggregator *a, uint64_t id, int code, const char *text);
/* Runs `call` on the lane of this number, and returns its result; -ENOENT: no such lane. */
int serve_call(struct aggregator *a, uint32_t lane, int (*call)(struct lane *lane, void *context),
               void *context);

#endif
