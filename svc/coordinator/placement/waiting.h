/* Jobs that wait where waiting helps: for a lane, for another job to be measured. Owns the text of
 * each wait, which workers log and `gradpool jobs` shows. README: K102. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H
#define GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct job;
struct packer_plan;
struct packer_request;

/* A declare waits so long for a lane, as its worker has named it. */
uint64_t waiting_lane_ns(const struct job *job);
/* Logs and sends the text, to each worker once; another text begins another wait. */
void waiting_begin(struct job *job, const char *text);
/* The job has what it waited for, or waits no longer. */
void waiting_end(struct job *job, bool goes_on);
/* A job that trains on one of the offered lanes and is not measured; NULL: none, or this job has
 * waited for one as long as its worker allows. */
const struct job *waiting_for_measure(struct job *job, const struct packer_request *request);
/* Of the wait that a declare begins now. */
uint64_t waiting_left_ns(const struct job *job);

/* Whether a job that finds no lane as it should may wait for an aggregator to start. */
bool waiting_may_start(const struct job *job);
/* Starts the aggregators that the plan needs; false: it needs none. */
bool waiting_start_for(struct job *job, const struct packer_plan *plan);
/* For a job that finds no lane at all, under any policy: whether it may wait for an aggregator to
 * come, and it does then. */
bool waiting_for_any(struct job *job);
/* It has its lanes, and waits no longer. */
void waiting_placed(struct job *job);

#endif
