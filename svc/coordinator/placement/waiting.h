/* Jobs that wait for a lane, or for the measurement of another job. Owns the reason of each wait,
 * which workers log and `gradpool jobs` shows. RULES.md: K102. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H
#define GRADPOOL_COORDINATOR_PLACEMENT_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct job;
struct packer_plan;
struct packer_request;

/* Time that a declare waits for a lane: of the option, else of its worker. */
uint64_t waiting_lane_ns(const struct job *job);
/* Begins a wait: logs the reason, and sends it to each worker once. Another reason begins another
 * wait. */
void waiting_begin(struct job *job, const char *text);
/* Ends the wait; `goes_on`: the job has what it waited for, which is logged and sent. */
void waiting_end(struct job *job, bool goes_on);
/* A job in training on one of the offered lanes that is not measured yet. NULL: there is none, or
 * `job` has waited as long as its worker allows. */
const struct job *waiting_for_measure(struct job *job, const struct packer_request *request);
/* Rest of the wait of a declare, at least 1. */
uint64_t waiting_left_ns(const struct job *job);

/* Whether a job that finds no fitting lane may wait until an aggregator starts. */
bool waiting_may_start(const struct job *job);
/* Starts the aggregators that the plan needs; false: the plan needs none. */
bool waiting_start_for(struct job *job, const struct packer_plan *plan);
/* Begins the wait of a job without any lane for an aggregator, under any policy; false: its time is
 * over. */
bool waiting_for_any(struct job *job);
/* Clears the deadlines of a job that has its lanes. */
void waiting_placed(struct job *job);

#endif
