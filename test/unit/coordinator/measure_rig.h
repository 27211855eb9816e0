/* Jobs that train by script: what lanes count of them, told when the coordinator asks. */
#ifndef GRADPOOL_TEST_MEASURE_RIG_H
#define GRADPOOL_TEST_MEASURE_RIG_H

#include "svc/coordinator/store/store.h"
#include "test/unit/coordinator/coordinator_rig.h"

#define LOOK_NS (5 * NS_PER_MS)
#define TRAINED_MAX 4 /* jobs that one answer tells of */

/* A job on one lane, as that lane counts. */
struct trained {
    uint32_t job, lane, reference;
    uint64_t rounds, begun_ns, busy_ns;
    uint64_t preempted_ns;           /* of busy_ns, another process had the core */
    uint64_t span_ns, burst_ns;      /* of each round; 0: not told */
    uint64_t late_ns;                /* that all rounds together took longer than that */
    uint64_t handled_ns, stalled_ns; /* so far */
    uint64_t core_wait_ns;           /* of the lane, likewise */
    uint64_t first_done_ns;          /* of its first round; 0: not over */
    uint64_t digest;                 /* of the lane's rows; 0: not told */
};

/* rig_setup(), with looks in quick succession. */
int measure_setup(void **state);
void trained_go_on(struct trained *t, uint64_t rounds, uint64_t period_ns, uint64_t lane_ns);
/* Answers the next request for figures; says which job's pieces it asked for. */
uint32_t trained_answer(struct end *aggregator, const struct trained *jobs, size_t count);
/* Answers the next one, sent after all answers were taken in, without the rows of that lane of the
 * aggregator; returns the digest that the request has for it. */
uint64_t trained_answer_known(struct end *aggregator, size_t index, uint64_t digest);
/* Says that the rows are left out, and has one. */
void trained_answer_both(struct end *aggregator, size_t index, uint64_t digest);
/* So many looks, ten rounds between two. */
void trained_run(struct end *aggregator, struct trained *job, int looks, uint64_t period_ns,
                 uint64_t lane_ns);
/* A job of one worker with one tensor, which lies on the lane that it names. */
struct trained trained_start(struct rig *rig, const char *name, struct end **ret_worker);
/* The caller frees the reply. */
envelope *measure_ask_job(struct rig *rig, const char *name, const WIRE(JobView) * *ret_view);
/* What an operator is told by `explain`; the caller's. */
envelope *measure_ask_why(struct rig *rig, const char *name);
/* The lane of a job of one worker and one tensor. It stays. */
uint32_t measure_lane_of(struct rig *rig, const char *name);
/* Knows each of these jobs: a period of 100 ms, so much lane time in it. */
void measure_know(struct rig *rig, uint64_t lane_ns, size_t count, const char *const *names);
/* And how their rounds end. */
void measure_know_ending(struct rig *rig, uint64_t lane_ns, uint64_t span_ns, uint64_t burst_ns,
                         size_t count, const char *const *names);
/* That of a coordinator which does not run. */
void measure_open_store(struct rig *rig, struct store **ret_store);

#endif
