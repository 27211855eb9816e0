/* Who keeps copies of what lanes have of jobs with `durability replica` (K57). */
#ifndef GRADPOOL_COORDINATOR_REPLICA_REPLICA_H
#define GRADPOOL_COORDINATOR_REPLICA_REPLICA_H

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/job.h"

/* The aggregator that is to keep a copy of the piece when it lies on that lane; 0: none. The one
 * that has it, if it may go on. */
uint32_t keeping_choose(const struct tensor *tensor, const struct piece *piece,
                        const struct lane *lane);
/* The piece lies on a lane that is told of that keeper with it; the keeper is to be told. */
void keeping_placed(struct job *job, struct piece *piece, uint32_t keeper);
/* It has moved there; `is_copied`: its keeper was told then, and has the copy. */
void keeping_moved(struct job *job, struct piece *piece, uint32_t keeper, bool is_copied);
/* Where it goes that one would keep its copy. -EAGAIN: what that has may still be wanted here, or
 * there is none, and here is one. */
int keeping_may_move(const struct tensor *tensor, const struct piece *piece, uint32_t keeper,
                     struct err *err);
/* Chooses for pieces whose keeper is gone, or is on their own aggregator now; tells keepers and
 * lanes what they do not know. To be called whenever that may have changed. */
void keeping_check(struct job *job);
void keeping_check_all(struct service *s);
/* It is back: it may have heard none of what it was told last. */
void keeping_aggregator_back(struct aggregator *a);
/* It is gone, and its pieces have new lanes, or none. */
void keeping_aggregator_lost(struct aggregator *a);
/* Nobody keeps anything of it any more: of a job that ends, of a tensor that is undeclared, of a
 * piece that has gone where another keeps its copies. */
void keeping_end(struct job *job);
void keeping_end_tensor(const struct tensor *tensor);
void keeping_end_piece(const struct job *job, uint32_t keeper, uint32_t piece);
/* It is chosen for nothing for a minute, and that is said. */
void keeping_relieve(struct aggregator *a, const struct job *job, uint32_t lane, const char *why);
/* ... because it does not reach that lane: others keep what the job has there. */
void keeping_unreachable(struct aggregator *a, struct job *job, const struct lane *lane);
/* The lane has told its figures, as they were asked for then: where each state has a whole copy,
 * former keepers are not needed. */
void keeping_look(struct job *job, const struct lane *lane, uint64_t asked_ns);
/* Whether it keeps anything of the job; of what is on that lane, unless that is NULL. */
bool keeping_has(const struct aggregator *a, const struct job *job, const struct lane *lane);

/* calls.c: says to all of these what they do not know. */
enum keeping_whom {
    TELL_LANE,   /* who keeps copies of its pieces */
    TELL_KEEPER, /* where they are */
    TELL_FORMER, /* likewise: the lane may want what it has */
};
void keeping_tell(struct job *job, enum keeping_whom whom);
/* What a keeper is asked for: a copy of the piece as it lies under that epoch. */
WIRE(CopySpec)
keeping_spec(const struct tensor *tensor, const struct piece *piece, uint32_t epoch, bool begins);
int keeping_send(struct aggregator *keeper, const struct job *job, uint32_t lane,
                 WIRE(CopySpec) * specs, size_t count, call_done_fn done, const void *data,
                 size_t data_bytes);

/* ticket.c: a keeper wants a ticket for a lane. */
void copy_ticket_handle(struct peer *p, const envelope *message);

#endif
