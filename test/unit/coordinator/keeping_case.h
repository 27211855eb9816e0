/* A job with `durability replica` and who keeps copies for it: what the tests of keeping begin
 * with. Where its pieces lie is settled by withholding all other lanes. */
#ifndef GRADPOOL_TEST_KEEPING_CASE_H
#define GRADPOOL_TEST_KEEPING_CASE_H

#include "svc/coordinator/service.h"
#include "svc/wire/durability.h"
#include "test/unit/coordinator/coordinator_rig.h"

#define KEPT_ELEMENTS 100
#define KEPT_BYTES (KEPT_ELEMENTS * 4 * (1 + 2)) /* of one state, with the moments of Adam */

struct kept {
    struct rig *rig;
    struct end *owner, *keeper, *worker;
    uint64_t session;
    uint32_t job, tensor;
    WIRE(Piece) piece;
};

/* A job of one worker; `session` 0: a new one. */
struct end *keeping_join(struct rig *rig, const char *job, enum durability durability,
                         uint64_t *session, uint32_t *job_id);
/* A tensor that Adam updates. The reply is asked for apart. */
uint64_t keeping_ask_declare(struct end *worker, const char *name);
/* The same, with its one piece. */
WIRE(Piece) keeping_declare(struct end *worker, const char *name);
/* An aggregator with one lane, on which nothing is placed before it is opened. */
struct end *keeping_aggregator(struct rig *rig);
void keeping_withhold(struct end *aggregator);
void keeping_open(struct end *aggregator);
/* A job with that durability and one tensor on the owner; another aggregator, which keeps a copy if
 * any is kept. Lane and keeper have not been listened to. */
struct kept keeping_begin(struct rig *rig, enum durability durability);
/* The same with a replica, the PlaceRequest and what is said first about the copy passed. */
struct kept keeping_begun(struct rig *rig);

/* Waits for the KeeperRequest about the piece. */
void keeping_lane_hears(const struct kept *k, struct end *owner, uint32_t keeper, bool when_known);
/* Waits for the CopiesRequest about the piece, on the lane of that owner. */
void keeping_keeper_hears(const struct kept *k, struct end *keeper, const struct end *owner,
                          uint32_t epoch, uint32_t lost_epoch, bool begins);
/* Waits for the PlaceRequest of the piece; the keeper that it names. */
uint32_t keeping_placed_with(const struct kept *k, struct end *owner);
/* Neither of them hears anything more about copies. */
void keeping_expect_silence(struct end *owner, struct end *keeper);
/* Unasked, as aggregators do: it has no id. */
void keeping_ask_ticket(struct end *keeper, uint32_t job, uint32_t lane, uint32_t failures);
/* Asks for the job's tasks to move there; the answer is asked for apart. */
uint64_t keeping_order_move(struct end *asker, const struct end *target);
void keeping_expect_moved(struct end *asker, uint64_t order);

#endif
