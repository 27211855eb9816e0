/* Hooks: calls from lower rooms to higher ones. A lower room reports an event, or asks a question,
 * without the name of the listener; hooks.c alone lists the listeners and their order. */
#ifndef GRADPOOL_COORDINATOR_HOOKS_H
#define GRADPOOL_COORDINATOR_HOOKS_H

#include "svc/coordinator/job/job.h"

struct slot;

struct peer_hooks {
    /* A peer's hello was accepted. */
    void (*opened)(struct peer *p);
    /* A message from an open peer; the handler may break any peer. */
    void (*message_came)(struct peer *p, const envelope *message);
    /* Answers one request of the peer that is ready; false: there was none. */
    bool (*answer_is_ready)(struct peer *p);
    /* Every message that the dead process of the peer's session had sent is handled. */
    void (*is_read_out)(struct peer *p);
    /* The peer is about to be freed: no pointer to it may remain. */
    void (*ends)(struct peer *p);
    /* The control connection of `a` or `session` (the other is NULL) has ended; `was_closed`: not
     * reset. */
    void (*connection_ended)(struct aggregator *a, struct session *session, bool was_closed);
};

struct aggregator_hooks {
    /* A new aggregator is up and has its Welcome. `slot` NULL: joined by hand. */
    void (*joined)(struct aggregator *a, struct slot *slot);
    /* An aggregator that was away is up again, with the pieces that `join` lists. */
    void (*is_back)(struct aggregator *a, const WIRE(AggregatorJoin) * join);
    /* The aggregator's control connection has ended, or was replaced by another. */
    void (*is_away)(struct aggregator *a);
    /* The aggregator counts as lost, though its process may live: a child process is killed. */
    void (*is_cut_off)(const struct aggregator *a);
    /* The aggregator is lost and cannot write any more. */
    void (*is_lost)(struct aggregator *a);
    /* The aggregator is about to be freed. */
    void (*ends)(struct aggregator *a);
    /* The aggregator is to hand over its replicas, then end. */
    void (*is_stopping)(struct aggregator *a);
    /* Whether the aggregator holds replicas that some job needs. */
    bool (*is_needed)(const struct aggregator *a);
    /* The process of a local aggregator has ended. */
    void (*process_ended)(struct service *s);
    /* The process of a local aggregator that had left its slot has ended. */
    void (*farewell_is_over)(struct service *s);
    /* Every aggregator has answered look number `look`, or missed its deadline. */
    void (*look_is_over)(struct service *s, uint64_t look);
};

struct job_hooks {
    /* The job ends next; the store still has its rows. */
    void (*is_ending)(const struct job *job);
    /* The store has forgotten the job: lanes and waiting workers get their messages. The job is
     * destroyed next. */
    void (*is_over)(struct job *job);
    /* The job is about to be freed, also at the end of the service, when no messages are sent. */
    void (*ends)(struct job *job);
    /* Pieces became ready, or never will: declares that wait for them may be answered. */
    void (*tensors_are_settled)(struct job *job);
    /* A regrouping that waits may begin now. */
    void (*may_regroup)(struct job *job);
    /* All lanes and workers know the new ranks of a job. */
    void (*ranks_have_changed)(struct service *s);
    /* The worker is lost, and its job continues without it. */
    void (*session_is_lost)(struct session *session);
    /* Whether the piece is on its way to another lane. */
    bool (*piece_moves)(const struct job *job, uint32_t piece);
    /* Whether `keeper` begins to hold replicas for pieces that move to `lane` (NULL: to any
     * lane). */
    bool (*keeps_what_moves)(const struct job *job, const struct aggregator *keeper,
                             const struct lane *lane);
    /* `keeper` cannot reach `lane` (NULL: any lane): the uncommitted moves of this job that need it
     * are aborted. */
    void (*keeper_is_unfit)(const struct job *job, const struct aggregator *keeper,
                            const struct lane *lane);
};

struct service_hooks {
    /* Something that people are shown has changed: a worker, lane, aggregator or job. */
    void (*view_has_changed)(struct service *s);
    /* Some job may begin to train: figures are wanted from now on. */
    void (*training_may_begin)(struct service *s);

    /* The service cannot go on and ends in order soon; the reason is in the log. */
    void (*gives_up)(struct service *s, int code);
};

extern const struct peer_hooks hooks_of_peers;
extern const struct aggregator_hooks hooks_of_aggregators;
extern const struct job_hooks hooks_of_jobs;
extern const struct service_hooks hooks_of_service;

#endif
