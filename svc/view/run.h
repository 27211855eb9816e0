/* Plain data for the report about a benchmark's run. Cores over time, losses of jobs, moves and
 * growth have the same structs as for a running service. The owner of the data owns strings and
 * arrays. */
#ifndef GRADPOOL_VIEW_RUN_H
#define GRADPOOL_VIEW_RUN_H

#include "svc/view/view.h"

#include <stdbool.h>

struct view_figure {
    const char *name;  /* key of the figure in the last line of the benchmark's output */
    const char *title; /* title for readers */
    double value;      /* value of the figure; NAN: unknown */
    bool is_ratio;     /* whether the value is shown in percent */
};

struct view_run_job {
    const char *job;
    uint32_t workers;
    /* period of a round: alone; with dedicated servers; in the service. NAN: unknown */
    double alone_s, dedicated_s, shared_s;
    double loss, predicted_loss; /* measured and predicted loss, 0 to 1; NAN: unknown */
};

struct view_run {
    const char *title;
    const struct view_fact *facts;
    size_t facts_count;
    const struct view_figure *figures;
    size_t figures_count;
    const struct view_moment *moments;
    size_t moments_count;
    const double *losses; /* loss of every job */
    size_t losses_count;
    const struct view_run_job *jobs; /* jobs that the report shows in rows of their own */
    size_t jobs_count;
    const struct view_event *events;
    size_t events_count;
};

#endif
