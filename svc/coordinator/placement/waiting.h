/* Jobs that wait for a lane, or for the measurement of another job. Owns the reason of each wait;
 * workers log the reason, and `gradpool jobs` shows it. RULES.md: K102. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H
#define GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct job;
struct packer_plan;
struct packer_request;

/* Returns the time for which a declare waits for a lane: from the option, or else from its
 * worker. */
uint64_t waiting_lane_ns(const struct job *job);
/* Begins a wait: logs the reason, and sends the reason to each worker once. A wait for another
 * reason counts as a new wait. */
void waiting_begin(struct job *job, const char *text);
/* Ends the wait. `goes_on`: the job got what it was waiting for, which is logged and sent. */
void waiting_end(struct job *job, bool goes_on);
/* Returns a job that trains on one of the offered lanes and is not measured yet. NULL: there is
 * none, or `job` has waited as long as its worker allows. */
const struct job *waiting_for_measure(struct job *job, const struct packer_request *request);
/* Returns the remaining time of a declare's wait, at least 1. */
uint64_t waiting_left_ns(const struct job *job);

/* Returns whether a job for which no lane fits may wait until an aggregator starts. */
bool waiting_may_start(const struct job *job);
/* Starts the aggregators that the plan needs. False: the plan needs none. */
bool waiting_start_for(struct job *job, const struct packer_plan *plan);
/* Begins the wait for an aggregator of a job that has no lane at all, under any policy. False: its
 * time is over. */
bool waiting_for_any(struct job *job);
/* Clears the deadlines of a job that has its lanes now. */
void waiting_placed(struct job *job);

#endif
