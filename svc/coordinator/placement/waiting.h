/* Jobs that wait for a lane, or until another job is measured. Owns the reason for each wait.
 * Workers log the reason, and `gradpool jobs` shows it. RULES.md: K102. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H
#define GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct job;
struct packer_plan;
struct packer_request;

/* Returns the longest time for which a declare waits for a lane: that of the option, or else that
 * of the worker. */
uint64_t waiting_lane_ns(const struct job *job);
/* Begins a wait: logs the reason and sends it to each worker once. A different reason begins a new
 * wait. */
void waiting_begin(struct job *job, const char *text);
/* Ends the wait. `goes_on`: the job no longer has to wait; this is logged and sent to workers. */
void waiting_end(struct job *job, bool goes_on);
/* Like waiting_begin() and waiting_end(), for pushes that wait for table memory. waiting_end() does
 * not end this wait. A request of a worker that reaches its deadline meanwhile ends with -EDQUOT
 * and the text. */
void waiting_for_rows(struct job *job, const char *text);
void waiting_for_rows_end(struct job *job);
/* Returns a job that trains on one of the offered lanes and is not measured yet; NULL: there is no
 * such job, or `job` has waited as long as its worker allows. */
const struct job *waiting_for_measure(struct job *job, const struct packer_request *request);
/* Returns the remaining time in ns for which a declare of the job may wait, at least 1. */
uint64_t waiting_left_ns(const struct job *job);

/* Returns whether a job that fits on no lane may wait until an aggregator starts. */
bool waiting_may_start(const struct job *job);
/* Starts the aggregators that the plan needs. Returns false if the plan needs none. */
bool waiting_start_for(struct job *job, const struct packer_plan *plan);
/* Begins the wait of a job for any aggregator, because there is no lane at all. Returns false if
 * the job has waited too long. */
bool waiting_for_any(struct job *job);
/* Clears the deadlines of a job that has received its lanes. */
void waiting_placed(struct job *job);

#endif
