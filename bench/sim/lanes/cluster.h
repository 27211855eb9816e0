/* The lanes of a simulated service and the jobs on them. Every placement comes from
 * packer_place(). */
#ifndef GRADPOOL_BENCH_SIM_LANES_CLUSTER_H
#define GRADPOOL_BENCH_SIM_LANES_CLUSTER_H

#include "bench/sim/lanes/job_profile.h"

struct cluster_lane {
    /* jobs on the lane; a lane without residents is closed and costs nothing */
    struct packer_resident *residents;
    size_t count, capacity;
};

struct cluster_job {
    const struct job_profile *profile;
    struct packer_timing timing;
    struct packer_piece *pieces;
    size_t count;
    bool is_placed;
};

struct cluster {
    const struct setting *setting;
    struct cluster_lane *lanes; /* lanes of the service; the index is the id */
    size_t lanes_count, lanes_open;
    struct cluster_job *jobs; /* jobs of the workload, in its order */
    size_t jobs_count;
    /* number of moves; one move is all pieces of a job that go from one lane to one other lane */
    uint64_t moves;
    char reason[256]; /* reason of the last refusal */
};

int cluster_init(struct cluster *cluster, const struct setting *setting, size_t jobs_count);
void cluster_fini(struct cluster *cluster);

/* Places a job with packer_place(). -ENOSPC: the packer has refused the request. */
int cluster_place(struct cluster *cluster, size_t job, const struct job_profile *profile);
void cluster_remove(struct cluster *cluster, size_t job);
/* Empties every lane whose tasks fit on other lanes within all loss limits. Returns 0 or
 * -ENOMEM. */
int cluster_consolidate(struct cluster *cluster);
/* Returns the part of the lane's time that the jobs would use without any loss. */
double cluster_busy(const struct cluster *cluster, size_t lane);

#endif
