/* Invented replies of a coordinator: two lanes of one aggregator, and two jobs. */
#ifndef GRADPOOL_TEST_SNAPSHOT_RIG_H
#define GRADPOOL_TEST_SNAPSHOT_RIG_H

#include "svc/ops/snapshot/snapshot.h"

#define RIG_SECOND UINT64_C(1000000000)

/* Contents of the replies. All counters count since the start. */
struct rig_service {
    uint64_t at_ns, incarnation;
    const char *state;             /* state of the aggregator */
    const char *lane_state;        /* state of lane 9; NULL: open */
    uint64_t lane_cpu_ns[2];       /* of lanes 7 and 9 */
    uint64_t busy_ns[2][2];        /* of jobs 3 and 5 on each lane */
    uint64_t rounds, pushed_bytes; /* of each job on each lane */
    const char *tenant, *job;      /* of job 3 */
    const char *job_state;         /* of job 5 */
    uint32_t more_jobs;            /* "job-0", "job-1", ... with numbers from 1000, on no lane */
    bool told_nothing;             /* no figures of the aggregator have come yet */
    bool hides_job;                /* job 5 belongs to another tenant */
    bool lone_job;                 /* job 5 has one worker */
    uint32_t loss_ppm;             /* loss of "job-0", ...; 0: not measured */
};

/* Builds the coordinator's replies; the caller frees them. */
void rig_replies(const struct rig_service *service, envelope **ret_status, envelope **ret_jobs);
/* Returns a snapshot of the service. The test fails without one. */
struct snapshot *rig_snapshot(const struct rig_service *service);
/* Returns a service that is half a minute old. The second one is a second later, with lane 7 at 0.5
 * core and lane 9 idle. */
struct rig_service rig_before(void);
struct rig_service rig_after(void);

#endif
