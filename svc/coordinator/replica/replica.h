/* Replica holders (keepers): the aggregators that store copies of lane state, for jobs with
 * `durability replica` (K57). */
#ifndef GRADPOOL_COORDINATOR_REPLICA_REPLICA_H
#define GRADPOOL_COORDINATOR_REPLICA_REPLICA_H

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/job.h"

/* The holder for the piece on that lane: the present one, if it may stay; 0: none. */
uint32_t keeping_choose(const struct tensor *tensor, const struct piece *piece,
                        const struct lane *lane);
/* Sets the holder of a piece that is placed: the lane learns the holder with the piece, the holder
 * is yet to get its message. */
void keeping_placed(struct job *job, struct piece *piece, uint32_t keeper);
/* Sets the holder of a piece that has moved; `is_copied`: the holder has the copy since before the
 * switch. */
void keeping_moved(struct job *job, struct piece *piece, uint32_t keeper, bool is_copied);
/* Whether the piece may move to a lane where `keeper` would be its holder. -EAGAIN: the lane may
 * still read the copy of `keeper` as a former holder, or the piece would lose its only holder. */
int keeping_may_move(const struct tensor *tensor, const struct piece *piece, uint32_t keeper,
                     struct err *err);
/* Chooses holders for pieces whose holder is gone, or is their owner's process now, and sends lanes
 * and holders what they do not know. Called whenever that may have changed. */
void keeping_check(struct job *job);
void keeping_check_all(struct service *s);
/* Handles an aggregator that is back, and may have missed the last messages. */
void keeping_aggregator_back(struct aggregator *a);
/* Handles a lost aggregator, whose pieces have new lanes, or none. */
void keeping_aggregator_lost(struct aggregator *a);
/* Tell holders to drop copies: of a job that ends, of an undeclared tensor, of a piece that has a
 * new holder. */
void keeping_end(struct job *job);
void keeping_end_tensor(const struct tensor *tensor);
void keeping_end_piece(const struct job *job, uint32_t keeper, uint32_t piece);
/* Excludes the aggregator as a holder for a minute, and logs why. */
void keeping_relieve(struct aggregator *a, const struct job *job, uint32_t lane, const char *why);
/* Excludes the aggregator, which cannot reach the lane; the job's pieces there get other
 * holders. */
void keeping_unreachable(struct aggregator *a, struct job *job, const struct lane *lane);
/* Handles figures of the lane, requested at `asked_ns`: if every state has a whole copy, former
 * holders drop theirs. */
void keeping_look(struct job *job, const struct lane *lane, uint64_t asked_ns);
/* Whether the aggregator holds, or begins to hold, replicas of the job; `lane` not NULL: of pieces
 * on that lane. */
bool keeping_has(const struct aggregator *a, const struct job *job, const struct lane *lane);

/* Sends pending messages of one kind; see calls.c. */
enum keeping_whom {
    TELL_LANE,   /* to lanes: the holders of their pieces */
    TELL_KEEPER, /* to holders: the lanes of their pieces */
    TELL_FORMER, /* to former holders: the lanes that may read their copies */
};
void keeping_tell(struct job *job, enum keeping_whom whom);
/* Description of a copy for a holder: of the piece as placed with that epoch. */
WIRE(CopySpec)
keeping_spec(const struct tensor *tensor, const struct piece *piece, uint32_t epoch, bool begins);
int keeping_send(struct aggregator *keeper, const struct job *job, uint32_t lane,
                 WIRE(CopySpec) * specs, size_t count, call_done_fn done, const void *data,
                 size_t data_bytes);

/* Handles the request of a holder for a ticket to a lane (ticket.c). */
void copy_ticket_handle(struct peer *p, const envelope *message);

#endif
