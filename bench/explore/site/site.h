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
    uint64_t at_ns;    /* time of helping or leaving, if that is ahead */
    uint64_t since_ns; /* begin of holding the slot */
};

/* A wait that the scheduler has a bound for. */
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
    double measure_at; /* steps at which the speed is reported */
    uint64_t submit_ns, start_ns, feedback_ns, end_ns;
    struct site_wait arrival, rest;
    bool was_silent; /* counted as running without a report */
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
    struct scheduler *scheduler; /* NULL: fixed */
    struct fixed_queue queue;
    uint32_t *started; /* room for the answer of a pass */
    struct site_list pauses;
    double held_s; /* slot time with a worker */
    double resizes, lane_changes;
    double best;
    uint64_t best_ns;
    /* for the bounds */
    uint64_t quantum_ns, probe_ns, leave_ns;
    uint32_t rests_over;
};

/* --- world.c --- */

uint64_t site_ns(double seconds);
double site_rate(const struct site *site, const struct site_trial *t);
uint32_t site_helpers(const struct site_trial *t);
/* Brings the progress of a trial up to the clock. */
void site_advance(struct site *site, struct site_trial *t);
/* Finds its next time again; after each change. */
void site_plan(struct site *site, struct site_trial *t);
int site_append(struct site_list *list, double value);

/* --- orders.c --- */

/* Gives an event to the policy and carries out what it answers. */
int orders_send(struct site *site, const struct scheduler_event *event);
void orders_release(struct site *site, struct site_rank *rank);
int orders_stop(struct site *site, struct site_trial *t, double seconds);

/* --- figures.c --- */

void figures_of(struct site *site, struct world_figures *ret_figures);
/* Watches the scheduler for the bounds, after each event and before its actions. */
void figures_watch(struct site *site);
/* Bounds of the trial's wait and rest (F7), with what was seen so far. */
uint64_t figures_arrival_bound_ns(const struct site *site, const struct site_trial *t);
uint64_t figures_rest_bound_ns(const struct site *site, const struct site_trial *t);

#endif
