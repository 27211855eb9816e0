/* Replica holders, called holders in the code: the aggregators that store copies of lanes' state,
 * for jobs with `durability replica` (K57). */
#ifndef GRADPOOL_COORDINATOR_REPLICA_REPLICA_H
#define GRADPOOL_COORDINATOR_REPLICA_REPLICA_H

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/job.h"

/* Returns the number of the holder for a piece on `lane`, or 0. The present holder is kept if
 * possible. */
uint32_t keeping_choose(const struct tensor *tensor, const struct piece *piece,
                        const struct lane *lane);
/* Chooses an aggregator for copies of states on `lane`; 0: no other aggregator can have copies. */
uint32_t keeping_choose_for(const struct job *job, const struct lane *lane);
/* Sets the holder of a piece that is being placed. The lane receives the holder's number with the
 * piece. The holder is informed later. */
void keeping_placed(struct job *job, struct piece *piece, uint32_t holder);
/* Sets the holder of a piece that has moved. `is_copied`: the holder had the whole copy before the
 * move. */
void keeping_moved(struct job *job, struct piece *piece, uint32_t holder, bool is_copied);
/* Checks whether the piece may move to a lane with `holder` as its holder. Returns 0 or -EAGAIN:
 * the lane may still have to read the copy of a former holder, or the piece would lose its only
 * holder. */
int keeping_may_move(const struct tensor *tensor, const struct piece *piece, uint32_t holder,
                     struct err *err);
/* Chooses a new holder for each piece whose holder is lost, or has become the owner of the piece.
 * Sends messages that lanes and holders have not received. Called whenever a lane or holder may
 * have changed. */
void keeping_check(struct job *job);
void keeping_check_all(struct service *s);
/* Called when an aggregator, which may have missed messages, has connected again. */
void keeping_aggregator_back(struct aggregator *a);
/* Called when an aggregator is lost, after its pieces were placed again or stranded. */
void keeping_aggregator_lost(struct aggregator *a);
/* These functions order holders to drop copies: keeping_end() for an ending job,
 * keeping_end_tensor() for an undeclared tensor, keeping_end_piece() for a piece with a new
 * holder. */
void keeping_end(struct job *job);
void keeping_end_tensor(const struct tensor *tensor);
void keeping_end_piece(const struct job *job, uint32_t holder, uint32_t piece);
/* Excludes the aggregator as a holder for one minute, and logs the reason. */
void keeping_relieve(struct aggregator *a, const struct job *job, uint32_t lane, const char *why);
/* Called when an aggregator cannot connect to the lane. The aggregator is not chosen as a holder,
 * and the job's pieces on the lane receive other holders. */
void keeping_unreachable(struct aggregator *a, struct job *job, const struct lane *lane);
/* Handles counters of the lane, requested at `asked_ns`. If the present holders have complete
 * copies of all states, the former holders are ordered to drop their copies. */
void keeping_look(struct job *job, const struct lane *lane, uint64_t asked_ns);
/* Returns whether the aggregator holds, or begins to hold, replicas of the job. With `lane`, only
 * pieces on that lane count. */
bool keeping_has(const struct aggregator *a, const struct job *job, const struct lane *lane);

/* Kinds of messages about replicas (calls.c). */
enum keeping_whom {
    TELL_LANE,   /* messages to lanes: the holders of their pieces */
    TELL_HOLDER, /* messages to holders: the lanes of the pieces */
    TELL_FORMER, /* messages to former holders: the lanes that may read their copies */
};
void keeping_tell(struct job *job, enum keeping_whom whom);
/* Fills in the description of a piece for its replica holder, under the given epoch. */
WIRE(CopySpec)
keeping_spec(const struct tensor *tensor, const struct piece *piece, uint32_t epoch, bool begins);
int keeping_send(struct aggregator *holder, const struct job *job, uint32_t lane,
                 WIRE(CopySpec) * specs, size_t count, call_done_fn done, const void *data,
                 size_t data_bytes);

/* Handles a holder's request for a ticket to a lane (ticket.c). */
void copy_ticket_handle(struct peer *p, const envelope *message);

#endif
