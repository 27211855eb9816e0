/* Work of a lane on the tables of a job. Thread: the lane's. */
#ifndef GRADPOOL_LANE_ROWS_ROWS_H
#define GRADPOOL_LANE_ROWS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct lane;
struct lane_job;
struct worker;

/* Share of a lane's turn, as TRANSFER_SHARE. */
#define ROWS_TURN_SHARE 16
/* Works on one part of a stripe and on one pull, and sends answers. Returns the share of the turn;
 * 0: no work is possible now. */
uint32_t rows_turn(struct lane_job *job);
/* The connection of the worker has ended: its requests are dropped, and it is no member any more,
 * so that no clock waits for it. */
void rows_forget(struct worker *w);
/* Returns whether no request of any table of the lane is open. */
bool rows_are_quiet(const struct lane *lane);

#endif
