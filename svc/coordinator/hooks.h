/* Callbacks by which lower rooms report events to higher rooms. A lower room does not know the
 * listeners. hooks.c alone lists the listeners and their order. */
#ifndef GRADPOOL_COORDINATOR_HOOKS_H
#define GRADPOOL_COORDINATOR_HOOKS_H

#include "svc/coordinator/job/job.h"

struct slot;
struct job_table;

struct peer_hooks {
    /* The first message (Hello) of a peer was accepted. */
    void (*opened)(struct peer *p);
    /* An accepted peer has sent a message. The handler may close any peer. */
    void (*message_came)(struct peer *p, const envelope *message);
    /* Sends the answer of one waiting request of the peer if the answer is ready. Returns whether
     * an answer was sent. */
    bool (*answer_is_ready)(struct peer *p);
    /* The process of the session has ended, and all its messages have been handled. */
    void (*is_read_out)(struct peer *p);
    /* The peer is about to be freed. Each listener removes its pointers to the peer. */
    void (*ends)(struct peer *p);
    /* A control connection of `a` or of `session` has ended; the other argument is NULL. */
    void (*connection_ended)(struct aggregator *a, struct session *session, enum channel_end end);
};

struct aggregator_hooks {
    /* A new aggregator has joined and has been welcomed. `slot` is NULL if an operator started the
     * aggregator by hand. */
    void (*joined)(struct aggregator *a, struct slot *slot);
    /* An aggregator has connected again. `join` lists the pieces on its lanes. */
    void (*is_back)(struct aggregator *a, const WIRE(AggregatorJoin) * join);
    /* The control connection of the aggregator has ended, or a newer connection has replaced it. */
    void (*is_away)(struct aggregator *a);
    /* The aggregator counts as lost, although its process may still run. A process that this
     * coordinator started is killed. */
    void (*is_cut_off)(const struct aggregator *a);
    /* The aggregator is lost, and its process can no longer write to the memory of workers. */
    void (*is_lost)(struct aggregator *a);
    /* The aggregator is about to be freed. */
    void (*ends)(struct aggregator *a);
    /* The aggregator moves its replicas to other holders and then ends. */
    void (*is_stopping)(struct aggregator *a);
    /* Returns whether a job needs replicas that the aggregator holds. */
    bool (*is_needed)(const struct aggregator *a);
    /* The process of a local aggregator has ended. */
    void (*process_ended)(struct service *s);
    /* A local aggregator that was leaving the service has ended. */
    void (*farewell_is_over)(struct service *s);
    /* Every aggregator has answered measurement number `look`, or missed its deadline. */
    void (*look_is_over)(struct service *s, uint64_t look);
};

struct job_hooks {
    /* The job is about to end. Its rows are still in the store. */
    void (*is_ending)(const struct job *job);
    /* The store has deleted the job. The listener informs lanes and waiting workers. The job is
     * freed afterwards. */
    void (*is_over)(struct job *job);
    /* The job is about to be freed. When the whole service ends, no messages are sent for the
     * job. */
    void (*ends)(struct job *job);
    /* Some pieces or shards have become ready or have failed, so declares that wait for them can be
     * answered. */
    void (*tensors_are_settled)(struct job *job);
    /* A change of the job's ranks that had to wait may begin. */
    void (*may_regroup)(struct job *job);
    /* All lanes and workers know the new ranks of a job. */
    void (*ranks_have_changed)(struct service *s);
    /* The worker is lost. Its job continues without this worker. */
    void (*session_is_lost)(struct session *session);
    /* The worker has left its job with a goodbye. */
    void (*rank_has_left)(const struct session *session);
    /* Returns whether the pool of a new worker allows the worker to join. Otherwise the listener
     * has sent the failure. */
    bool (*may_join)(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join);
    /* Checks whether an operator may change the number of workers. Returns 0 or -EOPNOTSUPP. */
    int (*may_resize)(const struct job *job, struct err *err);
    /* Returns whether the piece is moving to another lane. */
    bool (*piece_moves)(const struct job *job, uint32_t piece);
    /* Returns whether `holder` is becoming the replica holder of pieces that are moving to `lane`
     * (NULL: to any lane). */
    bool (*keeps_what_moves)(const struct job *job, const struct aggregator *holder,
                             const struct lane *lane);
    /* Returns whether a lane of the aggregator has a copy of the job's tables on `lane` (NULL: on
     * any lane). */
    bool (*has_copies_at)(const struct job *job, const struct aggregator *a,
                          const struct lane *lane);
    /* Returns the state of the copies of a table, as table_copies_state(). */
    WIRE(TableCopyState) (*table_copies)(const struct job_table *table, const char **ret_fault);
    /* `holder` cannot connect to `lane` (NULL: to any lane). Uncommitted moves of this job that
     * need the connection are aborted. */
    void (*holder_is_unfit)(const struct job *job, const struct aggregator *holder,
                            const struct lane *lane);
};

struct service_hooks {
    /* A worker, lane, aggregator or job has changed, so a display's copy of its state is out of
     * date. */
    void (*view_has_changed)(struct service *s);
    /* A job may begin to train, so the service has to measure from now on. */
    void (*training_may_begin)(struct service *s);
    /* The key of the tenant was revoked. The tenant's connections still exist. */
    void (*tenant_is_revoked)(struct service *s, const struct tenant *tenant);
    /* The service cannot continue and is about to end in order. The log has the reason. */
    void (*gives_up)(struct service *s, int code);
};

extern const struct peer_hooks hooks_of_peers;
extern const struct aggregator_hooks hooks_of_aggregators;
extern const struct job_hooks hooks_of_jobs;
extern const struct service_hooks hooks_of_service;

#endif
