/* State of the aggregator process, shared by the files of this folder. All fields belong to the
 * control thread, unless a comment says otherwise. */
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
    uint64_t incarnation; /* random number that identifies this process in tickets */
    enum reduce_set kernels;
    enum lane_policy policy;
    uint32_t number; /* number assigned by the coordinator; 0: none yet */
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
    /* event descriptor: readable when a lane has to report a failed job or a lost rank */
    int failure_fd;
    /* event descriptor: readable when moves, copies or requests for memory have to be checked */
    int moving_fd;
    /* set by the thread of a lane that waits for memory; moving_fd is readable then */
    atomic_bool memory_wanted;
    /* event descriptor: readable when the replica holder has requests (holder_next_ask()) */
    int keep_fd;
    /* replica holder, which stores states of other aggregators; NULL: none yet */
    struct holder *keeper;
    struct release *releases; /* releases without a reply; the newest is first */
    char *state_buffer;       /* moving.c: buffer for a part of a moved state; NULL: none yet */
    struct copies_wait *copies_waits; /* pending replies that wait for whole copies */
    struct ahead_wait *ahead_waits;   /* pending replies that wait for workers */
    struct recording *recordings;     /* recordings for timelines; the newest is first */
    /* earliest time at which a wait for a returning rank ends; 0: no rank is away */
    uint64_t away_due_ns;
    size_t stats_jobs; /* largest number of jobs on one lane in the last statistics */
    /* after a signal, the time until which tasks and state may move; 0: no signal yet */
    uint64_t leave_by_ns;
    bool is_draining;
    bool is_stale; /* the coordinator has given the tasks of this process to other aggregators */
};

/* aggregator.c. Ends all lanes, after the pending replies that call these lanes (A9). */
void aggregator_end_lanes(struct aggregator *a);

/* control.c. Connects to the coordinator and joins, for the first time or again. -ETIMEDOUT,
 * -ECONNREFUSED, ...: the caller may try again later. -ESTALE: the coordinator counts this process
 * as lost. After an error a->channel is NULL, unless the join succeeded and the channel broke
 * afterwards. */
int control_join(struct aggregator *a, uint64_t deadline_ns, struct err *err);
/* Says goodbye to the coordinator after the lanes have ended. Waits up to a second for the
 * answer. */
void control_leave(struct aggregator *a);
/* Receives and serves all requests that have arrived. -EAGAIN: no request is left. Another error:
 * the coordinator is away. */
int control_receive(struct aggregator *a);

/* serve.c. Serves a request and answers it on the channel. Returns an error of the channel only. */
int serve_request(struct aggregator *a, const envelope *request);
/* stats.c. Builds the counters of all lanes, without the rows that the request lists as known. The
 * caller frees the reply with free_unpacked(). NULL: no memory. */
Gradpool__Wire__StatsReply *stats_build(struct aggregator *a,
                                        const Gradpool__Wire__StatsRequest *request);

/* memory.c: memory that is allocated, with all its pages, before a lane needs it (A73). */
struct memory_coming {
    uint32_t job, workers;
    const struct lane_piece *pieces; /* pieces that the coordinator is about to place on the lane */
    size_t count;
};
/* Prepares as much memory for the pieces as the host has. -ENOSPC: the pieces need more than the
 * memory cgroup has left; `ret_text` has the reason. */
int memory_prepare(struct lane_thread *thread, const struct memory_coming *coming,
                   char ret_text[ERR_TEXT_BYTES]);
/* Frees prepared memory that the placement did not use. */
void memory_forget(struct lane_thread *thread);
/* Prepares memory for the jobs that wait for memory on lanes. */
void memory_serve_wishes(struct aggregator *a);

/* moving.c: pieces that move between lanes. moving_knows() returns true for requests that this file
 * serves. */
bool moving_knows(const envelope *request);
int moving_serve(struct aggregator *a, const envelope *request);
/* Checks the releases after pieces may have come to rest, and answers the complete ones. Any error:
 * the coordinator is away. */
int moving_rested(struct aggregator *a);
/* Returns the number of releases without a reply. */
size_t moving_waits(const struct aggregator *a);
/* Returns the time-out for poll() until the next check of releases that no event announces. */
int moving_timeout_ms(const struct aggregator *a);
/* Answers, with an error, the releases whose pieces were thawed or dropped or whose job has
 * failed. */
int moving_recheck(struct aggregator *a);
/* Drops the releases without a reply, because the coordinator is away. Released pieces stay
 * released (M3). */
void moving_abandon(struct aggregator *a);

/* ahead.c: waits until workers are ready for pieces that are about to move to this process. */

/* Answers request `id`. The answer is Done when the workers are connected and their memory is warm,
 * or after 3 s; Failure if the job fails or ends. */
int ahead_await(struct aggregator *a, uint64_t id, uint32_t lane, uint32_t job);
/* Checks the pending replies, and sends those that are due. Any error: the coordinator is away. */
int ahead_look(struct aggregator *a);
/* Returns the time-out for poll() until the next check. */
int ahead_timeout_ms(const struct aggregator *a);
/* Drops the pending replies, because the coordinator is away. */
void ahead_abandon(struct aggregator *a);

/* keeping.c: copies of states, both those stored here for other aggregators and those of the lanes
 * of this process. keeping_knows() returns true for requests that this file serves. */
bool keeping_knows(const envelope *request);
int keeping_serve(struct aggregator *a, const envelope *request);
/* Sends to the coordinator the replica holder's requests for tickets. Any error: the coordinator is
 * away. */
int keeping_ask(struct aggregator *a);
/* Returns the time-out for poll() until the replica holder may have a request. */
int keeping_timeout_ms(const struct aggregator *a);
/* Returns true while lanes of other aggregators write copies to this process: without this process
 * their jobs could not continue after a loss. */
bool keeping_is_used(const struct aggregator *a);
/* Checks the requests that wait for whole copies, after a copy may have become whole or its piece
 * was dropped. Any error: the coordinator is away. */
int keeping_copied(struct aggregator *a);
/* Drops the pending replies, because the coordinator is away. */
void keeping_abandon(struct aggregator *a);
/* Makes the replica holder send its requests again, because the coordinator is back and has lost
 * the earlier ones. */
void keeping_joined(struct aggregator *a);

/* leaving.c: a planned end (A71). */

/* Handles a signal: begins the planned end, or ends the process at once. */
void leaving_signal(struct aggregator *a, uint32_t number);
/* Sends the remaining time to the coordinator, once after each join, if a planned end has begun.
 * Any error: the coordinator is away. */
int leaving_tell(struct aggregator *a);
/* Ends the process when the time for the planned end is over. */
void leaving_check(struct aggregator *a);
/* Returns the time-out for poll() until the time for the planned end is over. */
int leaving_timeout_ms(const struct aggregator *a);
/* Returns the earlier of `deadline_ns` and the deadline of the planned end. */
uint64_t leaving_deadline_ns(const struct aggregator *a, uint64_t deadline_ns);

/* away.c: ranks that lost their connection to a lane and may connect again (A70). away_look() ends
 * the wait for ranks whose time is over. `has_news`: more ranks may be away than at the last
 * check. */
void away_look(struct aggregator *a, bool has_news);
/* Returns the time-out for poll() until the next wait ends. */
int away_timeout_ms(const struct aggregator *a);

/* timeline.c: recordings of the rounds of jobs. timeline_serve() begins, returns or ends
 * recordings, and answers request `id`. */
int timeline_serve(struct aggregator *a, uint64_t id, const Gradpool__Wire__TimelineTake *take);
/* Ends all recordings, because the coordinator is away. */
void timeline_abandon(struct aggregator *a);
/* Frees all recordings, after the lanes have ended. */
void timeline_free(struct aggregator *a);

/* report.c. Reports each job that has failed on a lane, and each lost rank (A12). Any error: the
 * coordinator is away. */
int serve_failures(struct aggregator *a);
/* Returns the number of connections of all lanes. */
size_t serve_connections(struct aggregator *a);
/* Fails all jobs of all lanes. Their workers get `code` and `text`. */
void serve_end_jobs(struct aggregator *a, int code, const char *text);
/* Returns the pieces of all lanes, as rows for AggregatorJoin. The caller frees the rows with
 * serve_held_free(). */
int serve_held(struct aggregator *a, Gradpool__Wire__PieceHeld ***ret_rows, size_t *ret_count);
void serve_held_free(Gradpool__Wire__PieceHeld **rows, size_t count);

/* reply.c. Returns the lane with this number; NULL: none. */
struct lane_thread *serve_find_lane(struct aggregator *a, uint32_t id);
/* Sends a reply, for example serve_answer(a, id, STATE_REPLY, state_reply, .data = data). Any
 * error: the coordinator is away. */
#define serve_answer(a, id, KIND, member, ...) \
    channel_send((a)->channel, &MESSAGE(id, KIND, member, __VA_ARGS__))
int serve_done(struct aggregator *a, uint64_t id);
/* Answers a request: with Done, or with Failure and the text of the errno value or `text`. Returns
 * the errors of serve_answer(). */
int serve_reply(struct aggregator *a, uint64_t id, int result);
int serve_reply_failure(struct aggregator *a, uint64_t id, int code, const char *text);
/* Runs `call` on the lane with this number, and returns the result of `call`. -ENOENT: no such
 * lane. */
int serve_call(struct aggregator *a, uint32_t lane, int (*call)(struct lane *lane, void *context),
               void *context);

#endif
