/* State of a simulated site, shared by world.c (clock and events), orders.c (actions of a policy)
 * and figures.c. */
#ifndef GRADPOOL_BENCH_EXPLORE_SITE_SITE_H
#define GRADPOOL_BENCH_EXPLORE_SITE_SITE_H

#include "bench/explore/site/world.h"
#include "packer/elastic/bound.h"

#define SITE_NS 1e9
#define SITE_NEVER UINT64_MAX

enum site_state { SITE_COMING, SITE_WAITING, SITE_ACTIVE, SITE_RESTING, SITE_OVER };

struct site_rank {
    bool is_present, helps, leaves;
    uint64_t at_ns;    /* time of a scheduled start or leave */
    uint64_t since_ns; /* time from which the rank has the slot */
};

/* A wait of a trial for which the scheduler promises a bound. */
struct site_wait {
    uint64_t from_ns, length_ns;
    uint32_t ahead, overdue, wide, wide_overdue;
};

struct site_trial {
    const struct trial *trial;
    enum site_state state;
    struct site_rank ranks[TRIAL_WORKERS_MAX];
    double steps;
    uint64_t updated_ns, stopped_until_ns, next_ns;
    uint32_t rung;
    double measure_at; /* the speed is reported at this number of steps */
    uint64_t submit_ns, start_ns, feedback_ns, end_ns;
    struct site_wait arrival, rest;
    bool was_silent; /* whether the trial counted as running without a report */
};

struct site_list {
    double *values;
    size_t count, room;
};

struct site {
    const struct world_setting *setting;
    uint64_t now_ns, chance;
    struct site_trial *trials;
    size_t over;
    struct trial_search search;
    /* scheduler of the policy; NULL: the policy has fixed numbers of workers */
    struct scheduler *scheduler;
    struct fixed_queue queue;
    uint32_t *started; /* buffer for the ids that a pass returns */
    struct site_list pauses;
    double held_s; /* total time in which slots had workers */
    double resizes, lane_changes;
    double best;
    uint64_t best_ns;
    /* longest times so far, which are inputs of the bounds (F7) */
    uint64_t quantum_ns, probe_ns, leave_ns;
    uint32_t rests_over;
};

/* --- world.c --- */

uint64_t site_ns(double seconds);
double site_rate(const struct site *site, const struct site_trial *t);
uint32_t site_helpers(const struct site_trial *t);
/* Updates the progress of a trial to the present time. */
void site_advance(struct site *site, struct site_trial *t);
/* Computes the time of the next event of a trial. Called after each change. */
void site_plan(struct site *site, struct site_trial *t);
int site_append(struct site_list *list, double value);

/* --- orders.c --- */

/* Sends an event to the policy and applies its actions. */
int orders_send(struct site *site, const struct scheduler_event *event);
void orders_release(struct site *site, struct site_rank *rank);
int orders_stop(struct site *site, struct site_trial *t, double seconds);

/* --- figures.c --- */

void figures_of(struct site *site, struct world_figures *ret_figures);
/* Updates the inputs of the bounds, after each event and before its actions. */
void figures_watch(struct site *site);
/* Returns the bounds of the trial's wait and rest (F7), computed from the longest times so far. */
uint64_t figures_arrival_bound_ns(const struct site *site, const struct site_trial *t);
uint64_t figures_rest_bound_ns(const struct site *site, const struct site_trial *t);

#endif
