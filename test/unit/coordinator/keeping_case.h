/* A job with `durability replica` and its replica holder, for the tests of copies. All lanes but
 * one are withheld, so that the lane of each piece is known. */
#ifndef GRADPOOL_TEST_KEEPING_CASE_H
#define GRADPOOL_TEST_KEEPING_CASE_H

#include "svc/coordinator/service.h"
#include "svc/wire/durability.h"
#include "test/unit/coordinator/coordinator_rig.h"

#define KEPT_ELEMENTS 100
#define KEPT_BYTES (KEPT_ELEMENTS * 4 * (1 + 2)) /* bytes of one state, with the moments of Adam */

struct kept {
    struct rig *rig;
    struct end *owner, *keeper, *worker;
    uint64_t session;
    uint32_t job, tensor;
    WIRE(Piece) piece;
};

/* Joins a job of one worker; `session` 0: a new one. */
struct end *keeping_join(struct rig *rig, const char *job, enum durability durability,
                         uint64_t *session, uint32_t *job_id);
/* Declares a tensor that Adam updates; the caller waits for the reply. */
uint64_t keeping_ask_declare(struct end *worker, const char *name);
/* Declares a tensor that Adam updates, and waits; returns the tensor's only piece. */
WIRE(Piece) keeping_declare(struct end *worker, const char *name);
/* An aggregator with one lane, which gets no piece before keeping_open(). */
struct end *keeping_aggregator(struct rig *rig);
void keeping_withhold(struct end *aggregator);
void keeping_open(struct end *aggregator);
/* Begins a job with that durability and one tensor on the owner. Another aggregator, if there is
 * one, holds the replica. Messages to owner and holder are not consumed. */
struct kept keeping_begin(struct rig *rig, enum durability durability);
/* Like keeping_begin() with a replica. The PlaceRequest and the first messages about the copy are
 * consumed. */
struct kept keeping_begun(struct rig *rig);

/* Waits for the KeeperRequest about the piece. */
void keeping_lane_hears(const struct kept *k, struct end *owner, uint32_t keeper, bool when_known);
/* Waits for the CopiesRequest about the piece, on the lane of that owner. */
void keeping_keeper_hears(const struct kept *k, struct end *keeper, const struct end *owner,
                          uint32_t epoch, uint32_t lost_epoch, bool begins);
/* Waits for the PlaceRequest of the piece; returns its replica holder. */
uint32_t keeping_placed_with(const struct kept *k, struct end *owner);
/* Checks that neither aggregator gets another message about copies. */
void keeping_expect_silence(struct end *owner, struct end *keeper);
/* Sends a message without an id, like an aggregator: no request asks for it. */
void keeping_ask_ticket(struct end *keeper, uint32_t job, uint32_t lane, uint32_t failures);
/* Orders a move of the job's tasks; the caller waits for the answer separately. */
uint64_t keeping_order_move(struct end *asker, const struct end *target);
void keeping_expect_moved(struct end *asker, uint64_t order);

#endif
