/* State of the aggregator process, shared by the files of this folder. Only the control thread uses
 * the fields, unless a comment says otherwise. */
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
    /* eventfd: readable when a lane has a failed job or a lost rank to report */
    int failure_fd;
    /* eventfd: readable when moves, copies or requests for memory have to be checked */
    int moving_fd;
    /* set by a lane's thread when the lane waits for memory; moving_fd is then readable */
    atomic_bool memory_wanted;
    /* eventfd: readable when the replica holder has requests (holder_next_ask()) or reports
     * (holder_next_logged()) */
    int keep_fd;
    /* replica holder, which stores states of other aggregators' lanes; NULL: none yet */
    struct holder *holder;
    struct release *releases; /* releases without a reply, newest first */
    char *state_buffer;       /* moving.c: buffer for a part of a moved state; NULL: none yet */
    struct copies_wait *copies_waits; /* replies that are delayed until copies are whole */
    struct ahead_wait *ahead_waits;   /* replies that are delayed until workers are ready */
    struct recording *recordings;     /* recordings for timelines, newest first */
    /* earliest deadline of a rank that may connect again; 0: no rank is away */
    uint64_t away_due_ns;
    size_t stats_jobs; /* largest number of jobs on one lane in the last reply with statistics */
    /* after a signal: deadline by which tasks and state should have moved to other aggregators; 0:
     * the process has received no signal */
    uint64_t leave_by_ns;
    bool is_draining;
    bool is_stale; /* the coordinator has moved the tasks of this process to other aggregators */
};

/* aggregator.c: ends all lanes. The pending replies are dropped first, because they call lanes
 * (A9). */
void aggregator_end_lanes(struct aggregator *a);

/* control.c: connects to the coordinator and joins, for the first time or again. Returns 0 or a
 * negative errno. -ESTALE: the coordinator counts this process as lost. After other errors, such as
 * -ETIMEDOUT and -ECONNREFUSED, the caller may try again. After an error a->channel is NULL, unless
 * the channel broke after the join. */
int control_join(struct aggregator *a, uint64_t deadline_ns, struct err *err);
/* Sends Goodbye to the coordinator after the lanes have ended. Waits up to a second for the
 * answer. */
void control_leave(struct aggregator *a);
/* Receives and handles all requests that have arrived. Returns -EAGAIN after the last one; any
 * other error means that the connection to the coordinator has ended. */
int control_receive(struct aggregator *a);

/* serve.c: handles a request and answers it on the channel. Returns 0 or an error of the
 * channel. */
int serve_request(struct aggregator *a, const envelope *request);
/* stats.c: builds the counters of all lanes, without the rows that the request lists as known. The
 * caller frees the reply with free_unpacked(). Returns NULL if memory is missing. */
Gradpool__Wire__StatsReply *stats_build(struct aggregator *a,
                                        const Gradpool__Wire__StatsRequest *request);

/* memory.c: memory that is allocated with all its pages before a lane needs it (A73). */
struct memory_coming {
    uint32_t job, workers;
    const struct lane_piece *pieces; /* pieces that will be placed on the lane */
    size_t count;
};
/* Prepares memory for the pieces, or for some of them if the host has too little memory. Returns 0,
 * or -ENOSPC if the memory cgroup has too little left; `ret_text` then has the reason. */
int memory_prepare(struct lane_thread *thread, const struct memory_coming *coming,
                   char ret_text[ERR_TEXT_BYTES]);
/* Frees prepared memory that the placement did not use. */
void memory_forget(struct lane_thread *thread);
/* Prepares memory for jobs on lanes that wait for memory. */
void memory_serve_wishes(struct aggregator *a);

/* allow.c: sends the requests of lanes for table memory to the coordinator. `again`: also
 * requests from an earlier connection. Returns 0 or an error; after an error the coordinator is
 * away. */
int allow_ask(struct aggregator *a, bool again);

/* bulk.c: rows of tables for exports and imports. bulk_knows() returns whether this file handles
 * the request; bulk_serve() returns the same values as serve_answer(). */
bool bulk_knows(const envelope *request);
int bulk_serve(struct aggregator *a, const envelope *request);
/* Ends the holds of all tables, because the coordinator is away. */
void bulk_abandon(struct aggregator *a);

/* moving.c: pieces that move between lanes. moving_knows() returns whether this file handles the
 * request. */
bool moving_knows(const envelope *request);
int moving_serve(struct aggregator *a, const envelope *request);
/* Returns a buffer of 1 MiB for a part of a state, or NULL if memory is missing. Every call returns
 * the same buffer. */
char *moving_state_buffer(struct aggregator *a);
/* Checks whether released pieces are frozen now, and answers the complete releases. Returns 0, or
 * an error if the connection to the coordinator has ended. */
int moving_rested(struct aggregator *a);
/* Returns the number of releases without a reply. */
size_t moving_waits(const struct aggregator *a);
/* Returns the timeout for poll() until the next check of the releases, because no event starts this
 * check. */
int moving_timeout_ms(const struct aggregator *a);
/* Answers a release with an error if its pieces were thawed or dropped, or if its job has
 * failed. */
int moving_recheck(struct aggregator *a);
/* Drops the pending replies, because the coordinator is away. Released pieces stay released
 * (M3). */
void moving_abandon(struct aggregator *a);

/* staging.c: begins a stage in the tables of a lane, and answers request `id`. */
int staging_serve(struct aggregator *a, uint64_t id, Gradpool__Wire__LaneStageRequest *request);

/* ahead.c: waits until workers are ready for pieces that will move to this process. */

/* Answers request `id` later: Done once the workers are connected and their memory is mapped, or
 * after 3 s; Failure if the job fails or ends. */
int ahead_await(struct aggregator *a, uint64_t id, uint32_t lane, uint32_t job);
/* Sends the pending replies that are due. Returns 0, or an error if the connection to the
 * coordinator has ended. */
int ahead_look(struct aggregator *a);
/* Returns the timeout for poll() until the next check. */
int ahead_timeout_ms(const struct aggregator *a);
/* Drops the pending replies, because the coordinator is away. */
void ahead_abandon(struct aggregator *a);

/* keeping.c: copies of states of other aggregators' lanes, which this process stores, and copies of
 * states of this process's lanes. keeping_knows() returns whether this file handles the request. */
bool keeping_knows(const envelope *request);
int keeping_serve(struct aggregator *a, const envelope *request);
/* Sends the replica holder's requests for tickets to the coordinator. Returns 0 or an error; after
 * an error the coordinator is away. */
int keeping_ask(struct aggregator *a);
/* Returns the timeout for poll() until the replica holder may have a request. */
int keeping_timeout_ms(const struct aggregator *a);
/* Returns whether lanes of other aggregators write copies to this process. If such a lane is lost,
 * its jobs need these copies. */
bool keeping_is_used(const struct aggregator *a);
/* Checks the requests that wait for complete copies. Called when a copy may have become complete,
 * or when a piece was dropped. Returns 0 or an error; after an error the coordinator is away. */
int keeping_copied(struct aggregator *a);
/* Drops the pending replies, because the coordinator is away. */
void keeping_abandon(struct aggregator *a);
/* Makes the replica holder send its requests again, because a restarted coordinator does not know
 * the earlier requests. */
void keeping_joined(struct aggregator *a);

/* Creates the replica holder, if there is none. Returns 0 or an error of holder_create(). */
int keeping_make_holder(struct aggregator *a);

/* leaving.c: planned end of the process (A71). */

/* Handles a signal: begins the planned end, or ends the process at once. */
void leaving_signal(struct aggregator *a, uint32_t number);
/* Sends the remaining time of a planned end to the coordinator, once after each join. Returns 0 or
 * an error; after an error the coordinator is away. */
int leaving_tell(struct aggregator *a);
/* Ends the process at the deadline of the planned end. */
void leaving_check(struct aggregator *a);
/* Returns the timeout for poll() until the deadline of the planned end. */
int leaving_timeout_ms(const struct aggregator *a);
/* Returns the earlier of `deadline_ns` and the deadline of the planned end. */
uint64_t leaving_deadline_ns(const struct aggregator *a, uint64_t deadline_ns);

/* away.c: ranks that have lost their connection to a lane and may connect again (A70). away_look()
 * ends the wait for ranks at their deadlines. `has_news`: more ranks may be away than at the last
 * check. */
void away_look(struct aggregator *a, bool has_news);
/* Returns the timeout for poll() until the next deadline. */
int away_timeout_ms(const struct aggregator *a);

/* timeline.c: recordings of the rounds of jobs. timeline_serve() begins, sends or ends recordings,
 * and answers request `id`. */
int timeline_serve(struct aggregator *a, uint64_t id, const Gradpool__Wire__TimelineTake *take);
/* Ends all recordings, because the coordinator is away. */
void timeline_abandon(struct aggregator *a);
/* Frees all recordings. Called after the lanes have ended. */
void timeline_free(struct aggregator *a);

/* report.c: reports each failed job and each lost rank of a lane (A12). Returns 0 or an error;
 * after an error the coordinator is away. */
int serve_failures(struct aggregator *a);
/* Returns the number of connections of all lanes. */
size_t serve_connections(struct aggregator *a);
/* Fails all jobs of all lanes. Their workers receive `code` and `text`. */
void serve_end_jobs(struct aggregator *a, int code, const char *text);
/* Writes the pieces of all lanes as rows for AggregatorJoin. The caller frees the rows with
 * serve_held_free(). Returns 0 or -ENOMEM. */
int serve_held(struct aggregator *a, Gradpool__Wire__PieceHeld ***ret_rows, size_t *ret_count);
void serve_held_free(Gradpool__Wire__PieceHeld **rows, size_t count);
/* Like serve_held() and serve_held_free(), for the shards of tables. */
int serve_held_tables(struct aggregator *a, Gradpool__Wire__TableHeld ***ret_rows,
                      size_t *ret_count);
void serve_held_tables_free(Gradpool__Wire__TableHeld **rows, size_t count);

/* reply.c: returns the lane with this number, or NULL. */
struct lane_thread *serve_find_lane(struct aggregator *a, uint32_t id);
/* Sends a reply, for example serve_answer(a, id, STATE_REPLY, state_reply, .data = data). Returns 0
 * or an error; after an error the coordinator is away. */
#define serve_answer(a, id, KIND, member, ...) \
    channel_send((a)->channel, &MESSAGE(id, KIND, member, __VA_ARGS__))
int serve_done(struct aggregator *a, uint64_t id);
/* serve_reply() answers a request with Done, or with Failure if `result` is a negative errno value.
 * serve_reply_failure() answers with Failure, `code` and `text`. Both functions return the same
 * values as serve_answer(). */
int serve_reply(struct aggregator *a, uint64_t id, int result);
int serve_reply_failure(struct aggregator *a, uint64_t id, int code, const char *text);
/* Runs `call` on the lane with this number and returns its result, or -ENOENT if there is no such
 * lane. */
int serve_call(struct aggregator *a, uint32_t lane, int (*call)(struct lane *lane, void *context),
               void *context);

#endif
