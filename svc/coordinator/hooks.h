/* News of lower rooms for higher ones. A lower room tells what has happened, or asks, and names
 * nobody; who hears of it, and in which order, stands in hooks.c alone. */
#ifndef GRADPOOL_COORDINATOR_HOOKS_H
#define GRADPOOL_COORDINATOR_HOOKS_H

#include "svc/coordinator/job/job.h"

struct slot;

struct peer_hooks {
    /* A peer has said hello. */
    void (*opened)(struct peer *p);
    /* A message of a peer that is open; the handler may break any peer. */
    void (*message_came)(struct peer *p, const envelope *message);
    /* Answers one request of the peer that is ready; false: there is none. */
    bool (*answer_is_ready)(struct peer *p);
    /* All is read that the process of the peer's session has sent before its end. */
    void (*is_read_out)(struct peer *p);
    /* The peer is freed next: nothing may point at it any more. */
    void (*ends)(struct peer *p);
    /* The connection of either (NULL: not of one) has ended; `was_closed`: it was not reset. */
    void (*connection_ended)(struct aggregator *a, struct session *session, bool was_closed);
};

struct aggregator_hooks {
    /* A new one is up, and welcomed. `slot` NULL: joined by hand. */
    void (*joined)(struct aggregator *a, struct slot *slot);
    /* One that was away is up again, and holds what its join says. */
    void (*is_back)(struct aggregator *a, const WIRE(AggregatorJoin) * join);
    /* Its control connection is gone, or was replaced by another. */
    void (*is_away)(struct aggregator *a);
    /* An aggregator counts as lost, though its process may live on: a child is ended. */
    void (*is_cut_off)(const struct aggregator *a);
    /* An aggregator is lost, and cannot write any more. */
    void (*is_lost)(struct aggregator *a);
    /* An aggregator is freed next. */
    void (*ends)(struct aggregator *a);
    /* An aggregator is to hand over what it keeps, and end. */
    void (*is_stopping)(struct aggregator *a);
    /* Whether it keeps copies that others need. */
    bool (*is_needed)(const struct aggregator *a);
    /* A local aggregator's process has ended. */
    void (*process_ended)(struct service *s);
    /* The process of a local aggregator that has left its slot has ended. */
    void (*farewell_is_over)(struct service *s);
    /* All aggregators have answered that look, or had their time. */
    void (*look_is_over)(struct service *s, uint64_t look);
};

struct job_hooks {
    /* The job is to end, and the store still has it. */
    void (*is_ending)(const struct job *job);
    /* The store has forgotten the job: lanes and waiting workers are to hear. It is destroyed
     * next. */
    void (*is_over)(struct job *job);
    /* The job is freed next, also at the end of the service, when nobody is told anything. */
    void (*ends)(struct job *job);
    /* Pieces became ready, or never will: declares that wait for them may be answered. */
    void (*tensors_are_settled)(struct job *job);
    /* A change of ranks that waits may begin now. */
    void (*may_regroup)(struct job *job);
    /* Lanes and workers know the new ranks of a job. */
    void (*ranks_have_changed)(struct service *s);
    /* A worker is lost, and its job goes on without it. */
    void (*session_is_lost)(struct session *session);
    /* Whether the piece is on its way to another lane. */
    bool (*piece_moves)(const struct job *job, uint32_t piece);
    /* Whether that aggregator begins to keep copies of what is on its way (to that lane; NULL: to
     * any). */
    bool (*keeps_what_moves)(const struct job *job, const struct aggregator *keeper,
                             const struct lane *lane);
    /* The aggregator does not reach the lane, so it keeps no copies of what moves there. */
    void (*keeper_is_unfit)(const struct job *job, const struct aggregator *keeper,
                            const struct lane *lane);
};

struct service_hooks {
    /* Something has come, gone or begun that people are shown. */
    void (*view_has_changed)(struct service *s);
    /* There may be something to measure from now on. */
    void (*training_may_begin)(struct service *s);

    /* The service cannot go on: it ends in order, soon. The reason has been logged. */
    void (*gives_up)(struct service *s, int code);
};

extern const struct peer_hooks hooks_of_peers;
extern const struct aggregator_hooks hooks_of_aggregators;
extern const struct job_hooks hooks_of_jobs;
extern const struct service_hooks hooks_of_service;

#endif
