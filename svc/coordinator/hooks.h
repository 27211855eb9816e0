/* Hooks: calls from lower rooms to higher ones. A lower room reports an event or asks a question
 * without naming the listener. hooks.c alone lists the listeners and their order. */
#ifndef GRADPOOL_COORDINATOR_HOOKS_H
#define GRADPOOL_COORDINATOR_HOOKS_H

#include "svc/coordinator/job/job.h"

struct slot;

struct peer_hooks {
    /* The hello of a peer was accepted. */
    void (*opened)(struct peer *p);
    /* An open peer has sent a message. The handler may break any peer. */
    void (*message_came)(struct peer *p, const envelope *message);
    /* Answers one request of the peer for which the answer is ready. False: no answer is ready. */
    bool (*answer_is_ready)(struct peer *p);
    /* The process of the peer's session is dead, and every message that it had sent has been
     * handled. */
    void (*is_read_out)(struct peer *p);
    /* The peer is about to be freed. No pointer to it may remain. */
    void (*ends)(struct peer *p);
    /* A control connection has ended: that of `a`, or of `session`; the other is NULL.
     * `was_closed`: the peer closed it; otherwise it was reset. */
    void (*connection_ended)(struct aggregator *a, struct session *session, bool was_closed);
};

struct aggregator_hooks {
    /* A new aggregator is up and has its Welcome. `slot` NULL: the aggregator was started by
     * hand. */
    void (*joined)(struct aggregator *a, struct slot *slot);
    /* An aggregator that was away is up again. `join` lists its pieces. */
    void (*is_back)(struct aggregator *a, const WIRE(AggregatorJoin) * join);
    /* The control connection of the aggregator has ended, or another one has replaced it. */
    void (*is_away)(struct aggregator *a);
    /* The aggregator counts as lost. If its process may still live and is a child, it is killed. */
    void (*is_cut_off)(const struct aggregator *a);
    /* The aggregator is lost, and its process cannot write any more. */
    void (*is_lost)(struct aggregator *a);
    /* The aggregator is about to be freed. */
    void (*ends)(struct aggregator *a);
    /* The aggregator has to move its replicas away, then end. */
    void (*is_stopping)(struct aggregator *a);
    /* Returns whether the aggregator holds replicas that a job needs. */
    bool (*is_needed)(const struct aggregator *a);
    /* The process of a local aggregator has ended. */
    void (*process_ended)(struct service *s);
    /* A local aggregator that had left its slot in order to end has ended. */
    void (*farewell_is_over)(struct service *s);
    /* Every aggregator has replied to measurement number `look`, or missed its deadline. */
    void (*look_is_over)(struct service *s, uint64_t look);
};

struct job_hooks {
    /* The job is about to end. The store still has its rows. */
    void (*is_ending)(const struct job *job);
    /* The store has deleted the job. Lanes and waiting workers get their messages now; afterwards
     * the job is freed. */
    void (*is_over)(struct job *job);
    /* The job is about to be freed. At the end of the service this happens without messages. */
    void (*ends)(struct job *job);
    /* Pieces have become ready, or never will. Declares that wait for these pieces may be
     * answered. */
    void (*tensors_are_settled)(struct job *job);
    /* A waiting regrouping of the job may begin. */
    void (*may_regroup)(struct job *job);
    /* All lanes and workers know the new ranks of a job. */
    void (*ranks_have_changed)(struct service *s);
    /* The worker is lost. Its job continues without the worker. */
    void (*session_is_lost)(struct session *session);
    /* Returns whether the piece is moving to another lane. */
    bool (*piece_moves)(const struct job *job, uint32_t piece);
    /* Returns whether `keeper` is becoming the replica holder of pieces that move to `lane` (NULL:
     * to any lane). */
    bool (*keeps_what_moves)(const struct job *job, const struct aggregator *keeper,
                             const struct lane *lane);
    /* `keeper` cannot connect to `lane` (NULL: to any lane). The uncommitted moves of this job that
     * need the connection are aborted. */
    void (*keeper_is_unfit)(const struct job *job, const struct aggregator *keeper,
                            const struct lane *lane);
};

struct service_hooks {
    /* An object that views show has changed: a worker, a lane, an aggregator or a job. */
    void (*view_has_changed)(struct service *s);
    /* A job may begin to train, so measurements are needed from now on. */
    void (*training_may_begin)(struct service *s);

    /* The service cannot continue, and is about to end in order. The log has the reason. */
    void (*gives_up)(struct service *s, int code);
};

extern const struct peer_hooks hooks_of_peers;
extern const struct aggregator_hooks hooks_of_aggregators;
extern const struct job_hooks hooks_of_jobs;
extern const struct service_hooks hooks_of_service;

#endif
