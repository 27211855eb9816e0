/* scale_look: counts of one window, made once for all rules. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_GROWTH_LOOK_H
#define GRADPOOL_PACKER_GROWTH_LOOK_H

#include "packer/growth/scale.h"

struct scale_look_lane {
    bool has_tasks;
    bool is_shared;  /* several jobs have tasks on the lane */
    uint32_t owner;  /* position of the job with the last task on the lane; UINT32_MAX: none */
    bool is_held;    /* a job on the lane forbids emptying and filling it (G6) */
    bool is_avoided; /* a job on the lane moves, is above its limit or is in a trial (G12) */
    double load;     /* share of the lane's time that the tasks of measured jobs take */
};

struct scale_look {
    const struct scale_seen *seen;
    struct scale_options options; /* defaults filled in */
    struct scale_look_lane *lanes;
    uint32_t *lanes_of; /* number of lanes of each job; exact for jobs that share no lane */
    bool *shares;       /* for each job: another job is on one of its lanes */
    size_t open;        /* open lanes, those about to close included */
    size_t staying;     /* open lanes that are not about to change */
    size_t coming;      /* lanes about to open */
    size_t used;        /* staying lanes with tasks */
    size_t empty;       /* staying lanes without a task */
    double load;        /* sum over the used lanes of max(load of the tasks, measured load) */
    uint64_t wished;    /* lanes that waiting jobs ask for */
    size_t short_of;    /* lanes that should open, even beyond lanes_max (G2, G3) */
    size_t room;        /* lanes that may still open */
    size_t surplus;     /* lanes that may park */
    size_t resting;     /* aggregators that may stop */
};

/* -EINVAL, -ENOMEM. Call scale_look_fini() after an error, too. */
int scale_look_init(struct scale_look *look, const struct scale_options *options,
                    const struct scale_seen *seen);
void scale_look_fini(struct scale_look *look);

/* Whether the job has lanes of its own now so that its period alone can be measured (G11). */
bool scale_is_measured_now(const struct scale_look *look, size_t job);
/* Whether a trial of fewer lanes goes on for the job (G12). */
bool scale_is_narrowed_now(const struct scale_look *look, size_t job);
bool scale_is_over(const struct scale_job *job);
/* Whether the lane is parked or not started, and not about to change. */
bool scale_is_closed(const struct scale_lane *lane);
/* Whether the aggregator runs, the caller may stop it, and no lane of it is open or about to
 * change. */
bool scale_is_resting(const struct scale_seen *seen, uint32_t aggregator);

#endif
