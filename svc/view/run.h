/* Plain snapshots of what a report shows besides a running service: a run of a bench; and what both
 * have: cores over time, what jobs lose, moves and growth. Strings and arrays are their owner's. */
#ifndef GRADPOOL_VIEW_RUN_H
#define GRADPOOL_VIEW_RUN_H

#include "svc/view/view.h"

#include <stdbool.h>

struct view_figure {
    const char *name;  /* as in the bench's last line */
    const char *title; /* for people */
    double value;      /* NAN: not known */
    bool is_ratio;     /* shown in percent */
};

struct view_run_job {
    const char *job;
    uint32_t workers;
    double alone_s, dedicated_s, shared_s; /* period of a round; NAN: not known */
    double loss, predicted_loss;           /* 0 to 1; NAN: not known */
};

struct view_run {
    const char *title;
    const struct view_fact *facts;
    size_t facts_count;
    const struct view_figure *figures;
    size_t figures_count;
    const struct view_moment *moments;
    size_t moments_count;
    const double *losses; /* of all jobs */
    size_t losses_count;
    const struct view_run_job *jobs; /* those that are shown one by one */
    size_t jobs_count;
    const struct view_event *events;
    size_t events_count;
};

#endif
