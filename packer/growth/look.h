/* scale_look: the counts of one window, computed once for all rules. Only packer/ uses this
 * header. */
#ifndef GRADPOOL_PACKER_GROWTH_LOOK_H
#define GRADPOOL_PACKER_GROWTH_LOOK_H

#include "packer/growth/scale.h"

struct scale_look_lane {
    bool has_tasks;
    bool is_shared; /* whether several jobs have tasks on the lane */
    uint32_t owner; /* position of the job with the last task on the lane; UINT32_MAX: none */
    /* whether a job on the lane forbids that tasks leave or enter the lane (G6) */
    bool is_held;
    /* whether a job on the lane moves, is above its limit, or is in a trial (G12) */
    bool is_avoided;
    double load; /* fraction of the lane's time that tasks of measured jobs use */
};

struct scale_look {
    const struct scale_seen *seen;
    struct scale_options options; /* options with defaults in place of zeros */
    struct scale_look_lane *lanes;
    uint32_t *lanes_of; /* number of lanes of each job; exact for jobs that share no lane */
    bool *shares;       /* whether another job is on a lane of the job, for each job */
    size_t open;        /* number of open lanes, including lanes that are closing */
    size_t staying;     /* number of open lanes that are not changing (staying lanes) */
    size_t coming;      /* number of lanes that are opening */
    size_t used;        /* number of staying lanes with tasks */
    size_t empty;       /* number of staying lanes without a task */
    /* sum of the loads of the used lanes; the load of a lane is the larger one of its measured load
     * and the computed load of its tasks */
    double load;
    uint64_t wished; /* number of lanes that waiting jobs need */
    /* number of lanes that should open, even if lanes_max does not permit this number (G2, G3) */
    size_t short_of;
    size_t room;      /* number of lanes that may still open without exceeding lanes_max */
    size_t surplus;   /* number of empty lanes that may be parked */
    size_t stoppable; /* number of aggregators that may stop */
};

/* Computes the counts. -EINVAL, -ENOMEM. The caller calls scale_look_fini() also after an error. */
int scale_look_init(struct scale_look *look, const struct scale_options *options,
                    const struct scale_seen *seen);
void scale_look_fini(struct scale_look *look);

/* Returns whether the job has separate lanes for the measurement of its period without other jobs
 * (G11). */
bool scale_is_measured_now(const struct scale_look *look, size_t job);
/* Returns whether a trial with fewer lanes is in progress for the job (G12). */
bool scale_is_narrowed_now(const struct scale_look *look, size_t job);
bool scale_is_over(const struct scale_job *job);
/* Returns whether the lane is parked or not started, without a change in progress. */
bool scale_is_closed(const struct scale_lane *lane);
/* Returns whether the aggregator runs, may be stopped, and has no lane that is open or changing. */
bool scale_may_stop(const struct scale_seen *seen, uint32_t aggregator);

#endif
