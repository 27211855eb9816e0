/* Simulates a site with trials on a virtual clock, under one policy. PURE: uses packer/elastic
 * directly. Figures come from the trials' progress, never from the scheduler's curves. */
#ifndef GRADPOOL_BENCH_EXPLORE_SITE_WORLD_H
#define GRADPOOL_BENCH_EXPLORE_SITE_WORLD_H

#include "bench/explore/input/trial.h"
#include "bench/explore/site/fixed.h"
#include "packer/elastic/scheduler.h"

#define WORLD_NAME_BYTES 32

struct world_policy {
    char name[WORLD_NAME_BYTES];
    bool is_fixed;
    enum fixed_rule rule; /* rule for jobs with a fixed number of workers */
    uint32_t workers;     /* fixed number of workers of each trial that is no stage */
    /* options of the scheduler, for policies without a fixed number of workers */
    struct scheduler_options options;
    bool preloads;    /* workers start within `preload_start_s` */
    double restart_s; /* time that a restart at each change takes; 0: changes need no restart */
};

struct world_setting {
    const struct world_policy *policy;
    const struct trial *trials; /* sorted by submit_s */
    size_t count;
    uint32_t slots;
    struct stream_costs costs;
    uint64_t seed; /* seed of measurement errors */
};

struct world_figures {
    double feedback_p50_s, feedback_p95_s; /* time from submit to first report */
    /* mean over all trials of a ratio: steps/s of the trial from submit to end, divided by the
     * steps/s of one worker */
    double speed;
    double whole_speed; /* mean speed over the trials that ran all their steps */
    double makespan_s;
    double slot_use;     /* fraction of the slot time with a worker */
    double best, best_s; /* best report of a whole training, and its time */
    /* median and longest pause of a job for a change of its workers */
    double pause_p50_s, pause_max_s;
    double resizes, lane_changes;
    double stage_wait_mean_s, stage_wait_max_s;
    /* largest ratio of a wait to its bound (F7); in a run with stages, only waits of stages count;
     * 0: no waits */
    double bound_use;
    /* number of arrivals and rests beyond their bound; only for the scheduler with rests */
    double waits_over;
    double rests_over;
};

/* Runs all trials to their ends. Returns 0, a negative errno of the policy, or -EPROTO: the policy
 * made a decision that the site cannot apply. */
int world_run(const struct world_setting *setting, struct world_figures *ret_figures);

#endif
