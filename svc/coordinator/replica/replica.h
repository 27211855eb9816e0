/* Replica holders ("keepers" in the code): the aggregators that store copies of the state of lanes,
 * for jobs with `durability replica` (K57). */
#ifndef GRADPOOL_COORDINATOR_REPLICA_REPLICA_H
#define GRADPOOL_COORDINATOR_REPLICA_REPLICA_H

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/job.h"

/* Returns the holder for the piece on that lane, which is the present one if it may stay; 0:
 * none. */
uint32_t keeping_choose(const struct tensor *tensor, const struct piece *piece,
                        const struct lane *lane);
/* Sets the holder of a piece that is being placed. The lane gets the holder's number with the
 * piece; the holder gets its message later. */
void keeping_placed(struct job *job, struct piece *piece, uint32_t keeper);
/* Sets the holder of a piece that has moved. `is_copied`: the holder already had the copy before
 * the switch. */
void keeping_moved(struct job *job, struct piece *piece, uint32_t keeper, bool is_copied);
/* Checks whether the piece may move to a lane where `keeper` would be its holder. -EAGAIN: the lane
 * may still read the copy of `keeper` as a former holder, or the piece would lose its only
 * holder. */
int keeping_may_move(const struct tensor *tensor, const struct piece *piece, uint32_t keeper,
                     struct err *err);
/* Chooses holders for pieces whose holder is lost or has become the process of their owner. Sends
 * lanes and holders the messages that they have not got. Called whenever one of these may have
 * changed. */
void keeping_check(struct job *job);
void keeping_check_all(struct service *s);
/* Handles an aggregator that is back and may have missed the last messages. */
void keeping_aggregator_back(struct aggregator *a);
/* Handles a lost aggregator, after its pieces have got new lanes or none. */
void keeping_aggregator_lost(struct aggregator *a);
/* Three functions that make holders drop copies: of a job that ends, of a tensor that was
 * undeclared, of a piece that has a new holder. */
void keeping_end(struct job *job);
void keeping_end_tensor(const struct tensor *tensor);
void keeping_end_piece(const struct job *job, uint32_t keeper, uint32_t piece);
/* Excludes the aggregator as a holder for a minute, and logs the reason. */
void keeping_relieve(struct aggregator *a, const struct job *job, uint32_t lane, const char *why);
/* Excludes an aggregator that cannot connect to the lane. The job's pieces there get other
 * holders. */
void keeping_unreachable(struct aggregator *a, struct job *job, const struct lane *lane);
/* Handles counters of the lane, requested at `asked_ns`. If all states have whole copies, former
 * holders drop theirs. */
void keeping_look(struct job *job, const struct lane *lane, uint64_t asked_ns);
/* Returns whether the aggregator holds, or begins to hold, replicas of the job; if `lane` is not
 * NULL, of pieces on that lane. */
bool keeping_has(const struct aggregator *a, const struct job *job, const struct lane *lane);

/* Kind of a message; see calls.c. */
enum keeping_whom {
    TELL_LANE,   /* to lanes: the holders of their pieces */
    TELL_KEEPER, /* to holders: the lanes of the pieces */
    TELL_FORMER, /* to former holders: the lanes that may read their copies */
};
void keeping_tell(struct job *job, enum keeping_whom whom);
/* Describes a copy for a holder: the piece as it was placed with that epoch. */
WIRE(CopySpec)
keeping_spec(const struct tensor *tensor, const struct piece *piece, uint32_t epoch, bool begins);
int keeping_send(struct aggregator *keeper, const struct job *job, uint32_t lane,
                 WIRE(CopySpec) * specs, size_t count, call_done_fn done, const void *data,
                 size_t data_bytes);

/* Handles the request of a holder for a ticket to a lane (ticket.c). */
void copy_ticket_handle(struct peer *p, const envelope *message);

#endif
