/* Two lanes with the same workers. The test acts as a coordinator that moves a piece between them
 * (A26 to A29 of svc/lane). */
#ifndef GRADPOOL_TEST_MOVING_RIG_H
#define GRADPOOL_TEST_MOVING_RIG_H

#include "svc/lane/move/release.h"
#include "test/unit/lane/lane_rig.h"

#define MOVED 1 /* number of the moving piece */
/* Difference between the words that ranks use at the new owner and at the old owner (W5). */
#define MOVED_OFFSET 1000

struct moving {
    const char *kind;
    struct rig from, to, alone;
    struct lane_piece spec;
};
extern struct moving moving;
static const uint32_t moved[] = {MOVED};

/* for cmocka */
int moving_clear(void **state);
int moving_stop(void **state);

/* Opens a lane with the piece `moving.spec`. */
void moving_open(struct rig *rig, uint32_t ranks, bool recovering);
/* Opens the source lane. */
void moving_start(uint32_t ranks, uint64_t elements, struct lane_terms terms);

/* ---- the workers' part ---- */

void moving_say(struct rig *rig, uint32_t rank, uint64_t round, uint8_t operation,
                uint8_t standing);
void push(struct rig *rig, uint32_t rank, uint64_t round, float value);
void stand(struct rig *rig, uint32_t rank, uint64_t round, uint8_t standing);
void expect(struct rig *rig, uint32_t rank, float value);
/* Checks that the rank's newest commit belongs to this round. */
void expect_commit(struct rig *rig, uint32_t rank, uint64_t round);
void expect_error(struct rig *rig, uint32_t rank, int code);
/* All ranks except rank 0 push ones. `sum` is the expected result. */
void do_round(struct rig *rig, uint64_t round, float sum);

/* ---- the coordinator's part ---- */

void moving_release(void);
/* Moves state and rounds of the frozen source to the target. Returns the round. */
uint64_t moving_hand_over(void);
/* Releases the piece, moves its state, and installs the piece on the target. The moved round must
 * be `round`. */
void moving_move(uint64_t round);

#endif
