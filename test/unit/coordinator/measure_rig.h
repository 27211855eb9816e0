/* Simulates training: sends counters of lanes when the coordinator requests them. */
#ifndef GRADPOOL_TEST_MEASURE_RIG_H
#define GRADPOOL_TEST_MEASURE_RIG_H

#include "svc/coordinator/store/store.h"
#include "test/unit/coordinator/coordinator_rig.h"

#define LOOK_NS (5 * NS_PER_MS)
#define TRAINED_MAX 4 /* maximum number of jobs in one answer */

/* A job on one lane, and the counters of the lane. */
struct trained {
    uint32_t job, lane, reference;
    uint64_t rounds, begun_ns, busy_ns;
    uint64_t preempted_ns; /* time within busy_ns in which another process used the core */
    /* times of each round, as in struct packer_timing; 0: the answer does not contain them */
    uint64_t span_ns, burst_ns;
    uint64_t late_ns;                /* total delay of all rounds */
    uint64_t handled_ns, stalled_ns; /* counters so far */
    uint64_t core_wait_ns;           /* total time for which the lane waited for its core */
    uint64_t first_done_ns;          /* time at which the first round ended; 0: still running */
    uint64_t rows_ns;                /* part of busy_ns for tables */
    uint64_t digest;                 /* digest of the lane's rows; 0: not sent */
};

/* rig_setup() with frequent measurements. */
int measure_setup(void **state);
void trained_go_on(struct trained *t, uint64_t rounds, uint64_t period_ns, uint64_t lane_ns);
/* Answers the next request for figures. Returns the job whose pieces the request names. */
uint32_t trained_answer(struct end *aggregator, const struct trained *jobs, size_t count);
/* Skips requests that were sent before all former answers arrived, and answers the next request.
 * The answer omits the rows of the aggregator's lane `index`. Returns the digest for this lane in
 * the request. */
uint64_t trained_answer_known(struct end *aggregator, size_t index, uint64_t digest);
/* Answers with a row of a lane, although the answer says that this lane's rows are omitted. */
void trained_answer_both(struct end *aggregator, size_t index, uint64_t digest);
/* Answers `looks` requests for figures. Ten rounds pass between two requests. */
void trained_run(struct end *aggregator, struct trained *job, int looks, uint64_t period_ns,
                 uint64_t lane_ns);
/* Starts a job of one worker and one tensor. The result contains its lane. */
struct trained trained_start(struct rig *rig, const char *name, struct end **ret_worker);
/* Requests a job's view. The caller frees the reply. */
envelope *measure_ask_job(struct rig *rig, const char *name, const WIRE(JobView) * *ret_view);
/* Requests the output of `explain`. The caller frees the reply. */
envelope *measure_ask_why(struct rig *rig, const char *name);
/* Starts a job of one worker and one tensor. The job continues. Returns the lane of its tensor. */
uint32_t measure_lane_of(struct rig *rig, const char *name);
/* Stores profiles of these jobs: a period of 100 ms and `lane_ns` of lane time. */
void measure_know(struct rig *rig, uint64_t lane_ns, size_t count, const char *const *names);
/* Like measure_know(), and also stores the times at which rounds end. */
void measure_know_ending(struct rig *rig, uint64_t lane_ns, uint64_t span_ns, uint64_t burst_ns,
                         size_t count, const char *const *names);
/* Opens the store of a stopped coordinator. */
void measure_open_store(struct rig *rig, struct store **ret_store);

#endif
