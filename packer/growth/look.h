/* scale_look: the counts of one window, computed once for all rules. Only packer/ uses this
 * header. */
#ifndef GRADPOOL_PACKER_GROWTH_LOOK_H
#define GRADPOOL_PACKER_GROWTH_LOOK_H

#include "packer/growth/scale.h"

struct scale_look_lane {
    bool has_tasks;
    bool is_shared;  /* several jobs have tasks on the lane */
    uint32_t owner;  /* position of the job that has the last task on the lane; UINT32_MAX: none */
    bool is_held;    /* a job on the lane forbids emptying or filling it (G6) */
    bool is_avoided; /* a job on the lane is moving, is above its limit, or is in a trial (G12) */
    double load;     /* share of the lane's time that the tasks of measured jobs need */
};

struct scale_look {
    const struct scale_seen *seen;
    struct scale_options options; /* with the defaults filled in */
    struct scale_look_lane *lanes;
    uint32_t *lanes_of; /* number of lanes of each job; exact for jobs that share no lane */
    bool *shares;       /* for each job: another job is on one of its lanes */
    size_t open;        /* number of open lanes, including those about to close */
    size_t staying;     /* number of open lanes that are not about to change */
    size_t coming;      /* number of lanes about to open */
    size_t used;        /* number of staying lanes that have tasks */
    size_t empty;       /* number of staying lanes without a task */
    double load;        /* sum of max(load of the tasks, measured load) over the used lanes */
    uint64_t wished;    /* number of lanes for which waiting jobs ask */
    size_t short_of;    /* number of lanes that should open, even beyond lanes_max (G2, G3) */
    size_t room;        /* number of lanes that may still open */
    size_t surplus;     /* number of lanes that may park */
    size_t resting;     /* number of aggregators that may stop */
};

/* Computes the counts. -EINVAL, -ENOMEM. The caller calls scale_look_fini() even after an error. */
int scale_look_init(struct scale_look *look, const struct scale_options *options,
                    const struct scale_seen *seen);
void scale_look_fini(struct scale_look *look);

/* Returns whether the job has lanes of its own so that its period alone can be measured (G11). */
bool scale_is_measured_now(const struct scale_look *look, size_t job);
/* Returns whether a trial with fewer lanes is in progress for the job (G12). */
bool scale_is_narrowed_now(const struct scale_look *look, size_t job);
bool scale_is_over(const struct scale_job *job);
/* Returns whether the lane is parked or not started, and not about to change. */
bool scale_is_closed(const struct scale_lane *lane);
/* Returns whether the aggregator runs, the caller may stop it, and none of its lanes is open or
 * about to change. */
bool scale_is_resting(const struct scale_seen *seen, uint32_t aggregator);

#endif
