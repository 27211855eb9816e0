/* A site with trials on a virtual clock, under one policy. PURE: links packer/elastic as the
 * coordinator will. A reported figure comes from the trials' progress, never from the scheduler's
 * curves. */
#ifndef GRADPOOL_BENCH_EXPLORE_SITE_WORLD_H
#define GRADPOOL_BENCH_EXPLORE_SITE_WORLD_H

#include "bench/explore/input/trial.h"
#include "bench/explore/site/fixed.h"
#include "packer/elastic/scheduler.h"

#define WORLD_NAME_BYTES 32

struct world_policy {
    char name[WORLD_NAME_BYTES];
    bool is_fixed;
    enum fixed_rule rule;             /* fixed */
    uint32_t workers;                 /* fixed: of each trial that is no stage */
    struct scheduler_options options; /* of the scheduler, where no fixed number is set */
    bool preloads;                    /* workers start in `preload_start_s` */
    double restart_s; /* a change restarts the whole job; 0: it joins and leaves live */
};

struct world_setting {
    const struct world_policy *policy;
    const struct trial *trials; /* in the order of submit_s */
    size_t count;
    uint32_t slots;
    struct stream_costs costs;
    uint64_t seed; /* of the errors of measurements */
};

struct world_figures {
    double feedback_p50_s, feedback_p95_s; /* submit to first report */
    double speed;       /* mean over trials of steps/s from submit to end, in one-worker speeds */
    double whole_speed; /* the same over trials that ran all their steps */
    double makespan_s;
    double slot_use;                 /* part of the slot time with a worker on it */
    double best, best_s;             /* best report of a whole training, and its time */
    double pause_p50_s, pause_max_s; /* stops of jobs by changes */
    double resizes, lane_changes;
    double stage_wait_mean_s, stage_wait_max_s;
    double bound_use;  /* largest wait over its bound (F7), stages first; 0 without stages */
    double waits_over; /* arrivals and rests beyond their bound; scheduler with rests only */
    double rests_over;
};

/* A negative errno of the policy, or -EPROTO: an action that the site cannot carry out. */
int world_run(const struct world_setting *setting, struct world_figures *ret_figures);

#endif
