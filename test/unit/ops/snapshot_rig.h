/* Invented replies of a coordinator about two lanes of one aggregator, and two jobs. */
#ifndef GRADPOOL_TEST_SNAPSHOT_RIG_H
#define GRADPOOL_TEST_SNAPSHOT_RIG_H

#include "svc/ops/snapshot/snapshot.h"

#define RIG_SECOND UINT64_C(1000000000)

/* Contents of the replies. All counters count from the start of the service. */
struct rig_service {
    uint64_t at_ns, incarnation;
    const char *state;             /* state of the aggregator */
    const char *lane_state;        /* state of lane 9; NULL: open */
    uint64_t lane_cpu_ns[2];       /* CPU time of lane 7, and CPU time of lane 9 */
    uint64_t busy_ns[2][2];        /* busy time for jobs 3 and 5, on each lane */
    uint64_t rounds, pushed_bytes; /* counters of each job on each lane */
    const char *tenant, *job;      /* names of the tenant and of job 3 */
    const char *job_state;         /* state of job 5 */
    /* number of jobs "job-0", "job-1", ... without a lane, with ids from 1000 */
    uint32_t more_jobs;
    bool told_nothing; /* the aggregator has not sent its figures yet */
    bool hides_job;    /* job 5 belongs to another tenant */
    bool lone_job;     /* job 5 has only one worker */
    uint32_t loss_ppm; /* loss of each of these jobs; 0: not measured */
};

/* Builds the coordinator's replies. The caller frees them. */
void rig_replies(const struct rig_service *service, envelope **ret_status, envelope **ret_jobs);
/* Returns a snapshot of the service. Fails the test if there is none. */
struct snapshot *rig_snapshot(const struct rig_service *service);
/* rig_before() returns a service that has run for half a minute. rig_after() returns the same
 * service one second later. In this second lane 7 has used half a core, and lane 9 was idle. */
struct rig_service rig_before(void);
struct rig_service rig_after(void);

#endif
