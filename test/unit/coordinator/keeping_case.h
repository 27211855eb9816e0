/* A job with `durability replica`, and the aggregator that stores its copies. Only one lane is open
 * for placement, so the lane of each piece is known. */
#ifndef GRADPOOL_TEST_KEEPING_CASE_H
#define GRADPOOL_TEST_KEEPING_CASE_H

#include "svc/coordinator/service.h"
#include "svc/wire/durability.h"
#include "test/unit/coordinator/coordinator_rig.h"

#define KEPT_ELEMENTS 100
/* size in bytes of one state with Adam's two moments */
#define KEPT_BYTES (KEPT_ELEMENTS * 4 * (1 + 2))

struct kept {
    struct rig *rig;
    struct end *owner, *holder, *worker;
    uint64_t session;
    uint32_t job, tensor;
    WIRE(Piece) piece;
};

/* Joins a job with one worker. If `session` is 0, starts a new session. */
struct end *keeping_join(struct rig *rig, const char *job, enum durability durability,
                         uint64_t *session, uint32_t *job_id);
/* Declares a tensor updated by Adam. The caller waits for the reply. */
uint64_t keeping_ask_declare(struct end *worker, const char *name);
/* Declares a tensor updated by Adam, and waits. Returns the tensor's only piece. */
WIRE(Piece) keeping_declare(struct end *worker, const char *name);
/* Returns an aggregator with one lane. The lane receives no piece before keeping_open(). */
struct end *keeping_aggregator(struct rig *rig);
void keeping_withhold(struct end *aggregator);
void keeping_open(struct end *aggregator);
/* Starts a job with this durability and one tensor on the owner. A second aggregator, if there is
 * one, stores the copy. Messages to both aggregators remain queued. */
struct kept keeping_begin(struct rig *rig, enum durability durability);
/* Like keeping_begin() with a copy. Reads the PlaceRequest and the first messages about the
 * copy. */
struct kept keeping_begun(struct rig *rig);

/* Waits for the HolderRequest about the piece. */
void keeping_lane_hears(const struct kept *k, struct end *owner, uint32_t holder, bool when_known);
/* Waits for the CopiesRequest about the piece, which names the owner's lane. */
void keeping_holder_hears(const struct kept *k, struct end *holder, const struct end *owner,
                          uint32_t epoch, uint32_t lost_epoch, bool begins);
/* Waits for the PlaceRequest of the piece. Returns the aggregator with its copy. */
uint32_t keeping_placed_with(const struct kept *k, struct end *owner);
/* Checks that neither the owner nor the holder receives another message about copies. */
void keeping_expect_silence(struct end *owner, struct end *holder);
/* Requests a ticket for a lane, like a replica holder. The message has no id, so the coordinator
 * answers with a COPY_TICKET. */
void keeping_ask_ticket(struct end *holder, uint32_t job, uint32_t lane, uint32_t failures);
/* Orders a move of the job's tasks. The caller waits for the answer. */
uint64_t keeping_order_move(struct end *asker, const struct end *target);
void keeping_expect_moved(struct end *asker, uint64_t order);

#endif
