/* Scripted training: counters of lanes, sent when the coordinator asks. */
#ifndef GRADPOOL_TEST_MEASURE_RIG_H
#define GRADPOOL_TEST_MEASURE_RIG_H

#include "svc/coordinator/store/store.h"
#include "test/unit/coordinator/coordinator_rig.h"

#define LOOK_NS (5 * NS_PER_MS)
#define TRAINED_MAX 4 /* most jobs in one answer */

/* A job on one lane, with the counters of that lane. */
struct trained {
    uint32_t job, lane, reference;
    uint64_t rounds, begun_ns, busy_ns;
    uint64_t preempted_ns;           /* part of busy_ns in which another process had the core */
    uint64_t span_ns, burst_ns;      /* of each round; 0: not sent */
    uint64_t late_ns;                /* time by which all rounds together took longer */
    uint64_t handled_ns, stalled_ns; /* counters so far */
    uint64_t core_wait_ns;           /* waits of the lane for its core so far */
    uint64_t first_done_ns;          /* end of the first round; 0: not ended */
    uint64_t digest;                 /* digest of the lane's rows; 0: not sent */
};

/* rig_setup(), with frequent measurements. */
int measure_setup(void **state);
void trained_go_on(struct trained *t, uint64_t rounds, uint64_t period_ns, uint64_t lane_ns);
/* Answers the next request for figures. Returns the job whose pieces the request names. */
uint32_t trained_answer(struct end *aggregator, const struct trained *jobs, size_t count);
/* Answers the next request, which was sent after all former answers arrived, without the rows of
 * the aggregator's index-th lane. Returns the digest for that lane in the request. */
uint64_t trained_answer_known(struct end *aggregator, size_t index, uint64_t digest);
/* Answers with a row, although the answer says that the rows are left out. */
void trained_answer_both(struct end *aggregator, size_t index, uint64_t digest);
/* Answers `looks` requests, with ten rounds between two of them. */
void trained_run(struct end *aggregator, struct trained *job, int looks, uint64_t period_ns,
                 uint64_t lane_ns);
/* Starts a job of one worker and one tensor. The result has its lane. */
struct trained trained_start(struct rig *rig, const char *name, struct end **ret_worker);
/* Requests a job's view. The caller frees the reply. */
envelope *measure_ask_job(struct rig *rig, const char *name, const WIRE(JobView) * *ret_view);
/* Requests the output of `explain`; the caller frees it. */
envelope *measure_ask_why(struct rig *rig, const char *name);
/* Returns the lane of a new job of one worker and one tensor. The job stays. */
uint32_t measure_lane_of(struct rig *rig, const char *name);
/* Stores profiles of these jobs: a period of 100 ms, and `lane_ns` of lane time. */
void measure_know(struct rig *rig, uint64_t lane_ns, size_t count, const char *const *names);
/* Stores the ends of their rounds, too. */
void measure_know_ending(struct rig *rig, uint64_t lane_ns, uint64_t span_ns, uint64_t burst_ns,
                         size_t count, const char *const *names);
/* Opens the store of a coordinator that does not run. */
void measure_open_store(struct rig *rig, struct store **ret_store);

#endif
