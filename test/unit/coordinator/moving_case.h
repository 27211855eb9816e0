/* A job of one worker on one lane, and a second lane as the target of moves. */
#ifndef GRADPOOL_TEST_MOVING_CASE_H
#define GRADPOOL_TEST_MOVING_CASE_H

#include "test/unit/coordinator/coordinator_rig.h"

struct moving {
    struct rig *rig;
    struct end *source, *target, *worker, *asker;
    uint64_t session, order; /* `order` is the number of the unanswered request to move */
    uint32_t job, tensor;
    WIRE(Piece) piece;
};

/* Declares a tensor on the source, as rank 0 of a job. moving_begin_with(): the job has `workers`
 * workers. moving_begin(): the job has one worker. */
struct moving moving_begin_with(struct rig *rig, uint32_t workers);
struct moving moving_begin(struct rig *rig);
/* Orders a move of the job to the target. The caller waits for the answer. */
void moving_order(struct moving *m);
/* Waits for the answer, which the caller frees. `stays`: part of the stated reason why tasks stay;
 * NULL: all tasks have moved. */
envelope *moving_answer(struct moving *m, const char *stays);
/* Waits for a message of this kind to the lane, and frees the message. */
void moving_passes(struct end *lane, int body);
/* moving_stop_at_install() orders the move, and stops before the target answers the install.
 * moving_go_on() sends this answer. */
envelope *moving_stop_at_install(struct moving *m);
void moving_go_on(struct moving *m, envelope *install);
/* Orders a drain of the lane or of the aggregator; one of the two numbers is 0. The answer has the
 * form of the answer to a move. */
uint64_t moving_drain(struct moving *m, uint32_t lane, uint32_t aggregator, bool undo);
uint64_t moving_declare(struct end *worker, const char *name, WIRE(Piece) * ret_piece);

#endif
