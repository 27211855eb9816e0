/* Work of a lane on the tables of a job. Thread: the lane's. */
#ifndef GRADPOOL_LANE_ROWS_ROWS_H
#define GRADPOOL_LANE_ROWS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct lane;
struct lane_job;
struct lane_job_use;
struct lane_table;
struct worker;

/* Share of a lane's turn that one part of the work on tables uses, in the unit of TRANSFER_SHARE,
 * the share of a long chunk. */
#define ROWS_TURN_SHARE 16
/* Works on one part of a stripe and on one pull, and sends answers. Returns the share of the turn;
 * 0: no work is possible now. */
uint32_t rows_turn(struct lane_job *job);
/* Frees all tables and copies of the job. */
void rows_free(struct lane_job *job);
/* Returns the lane time of the job's tables, which is part of the job's lane time. */
uint64_t rows_busy_ns(const struct lane_job *job);
/* Sets the number of rounds of a job without a reference piece: the number of clocks that all
 * members have ended, or, if no clock has ended, the number of pushes to tables with ASP. */
void rows_measure(const struct lane_job *job, struct lane_job_use *use);
/* Drops the requests of a worker whose connection has ended, or that never had a connection. A
 * worker that was lost, or has left an elastic job, is no longer a member, so no clock waits for
 * this worker. The job fails with -EPIPE if the worker has left a job that is not elastic before
 * its pushes were applied, or during a clock that another rank has ended. A replica holder has
 * neither requests nor memberships. */
void rows_forget(struct worker *w);
/* Fails the job with -EPIPE if a rank has left before the end of a clock that another rank has
 * ended. */
void rows_check_left(struct lane_table *table);
/* Returns whether no request of any table of the lane is open. Failed jobs do not count. */
bool rows_are_quiet(const struct lane *lane);

#endif
