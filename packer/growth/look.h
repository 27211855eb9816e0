/* scale_look: what is seen in one window, counted once for all rules. Not seen outside packer/. */
#ifndef GRADPOOL_PACKER_GROWTH_LOOK_H
#define GRADPOOL_PACKER_GROWTH_LOOK_H

#include "packer/growth/scale.h"

struct scale_look_lane {
    bool has_tasks;
    bool is_shared;  /* by several jobs */
    uint32_t owner;  /* position of the job whose task on it stands last; UINT32_MAX: none */
    bool is_held;    /* a job on it is not to be planned for: G6 */
    bool is_avoided; /* a job on it is over its limit, or on its way */
    double load;     /* share of its time that its tasks take, as they are known */
};

struct scale_look {
    const struct scale_seen *seen;
    struct scale_options options; /* with the defaults in */
    struct scale_look_lane *lanes;
    uint32_t *lanes_of; /* jobs: on how many lanes they are; counted if they share none */
    bool *shares;       /* jobs: whether others are on a lane of it */
    size_t open;        /* those that are about to close included */
    size_t staying;     /* of these, not about to change */
    size_t coming;      /* about to open */
    size_t used;        /* staying, with tasks */
    size_t empty;       /* staying, without */
    double load;        /* of those in use; the larger of what is known and what was measured */
    uint64_t wished;    /* lanes */
    size_t short_of;    /* lanes that should open, whether they may or not */
    size_t room;        /* lanes that may still open */
    size_t surplus;     /* lanes that may park */
    size_t resting;     /* aggregators that may stop */
};

/* -EINVAL, -ENOMEM. To be ended with scale_look_fini() in any case. */
int scale_look_init(struct scale_look *look, const struct scale_options *options,
                    const struct scale_seen *seen);
void scale_look_fini(struct scale_look *look);

/* It has lanes for itself, to be measured alone for the first time (G11). */
bool scale_is_measured_now(const struct scale_look *look, size_t job);
/* Lanes were taken from it, and it is not known yet whether those that it has are enough (G12). */
bool scale_is_narrowed_now(const struct scale_look *look, size_t job);
bool scale_is_over(const struct scale_job *job);
bool scale_is_closed(const struct scale_lane *lane); /* and could open */
/* Whether it runs, and no lane of it is or is about to be open. */
bool scale_is_resting(const struct scale_seen *seen, uint32_t aggregator);

#endif
