/* Figures of a job: one table for top, metrics, page and JSON. A new figure is one line in
 * figures.c. */
#ifndef GRADPOOL_OPS_SNAPSHOT_FIGURES_H
#define GRADPOOL_OPS_SNAPSHOT_FIGURES_H

#include "svc/ops/snapshot/snapshot.h"

#define FIGURE_BYTES 64

enum figure_unit { FIGURE_COUNT, FIGURE_CORES, FIGURE_BYTES_PER_S, FIGURE_SECONDS, FIGURE_RATIO };

struct figure {
    const char *name;  /* member in JSON; the metric is "gradpool_job_" and this name */
    const char *title; /* title of the column, left out if no job has the figure */
    const char *help;
    enum figure_unit unit;
    bool is_metric; /* false: Prometheus computes the figure from counters */
    double (*value)(const struct view_job *job); /* NAN: unknown */
};

extern const struct figure job_figures[]; /* ends with a NULL name */

/* Cores that servers of the job's own would hold: one a worker; none for a job of one worker, which
 * has nothing to sum (O5). */
double job_dedicated(const struct view_job *job);
/* Measured loss, 0 to 1; NAN: unknown. */
double job_loss(const struct view_job *job);
/* The part of the loss that waiting for lanes explains. */
double job_shared_loss(const struct view_job *job);
/* True when any job has the figure. */
bool figure_is_known(const struct figure *figure, const struct view_jobs *jobs);
/* A figure such as "0.25", "3 MiB/s", "12 ms", "4.0 %"; "-": unknown. Returns the buffer. */
const char *figure_text(enum figure_unit unit, double value, char buffer[FIGURE_BYTES]);

#define JOB_LABEL_BYTES 256
/* "tenant/job", or "job" for jobs without a tenant. Returns the buffer. */
const char *job_label(const struct view_job *job, char buffer[JOB_LABEL_BYTES]);

/* Dedicated cores less allocated ones; NAN without jobs. */
double cores_saved(const struct view_cores *cores);
/* False for a lane that is parked, or withheld without tasks: it sleeps, and its core is free for
 * others. */
bool lane_is_allocated(const struct view_lane *lane);
/* "up", or the state that keeps jobs off the lane: "parked", "closing", "silent", ... */
const char *lane_state_text(const struct view_aggregator *a, const struct view_lane *lane);

#define SHARES_SHOWN 4
#define SHARES_BYTES 1200
/* "a 62 %, acme/b 38 %": the largest shares, then the number of the others. Returns the buffer. */
const char *shares_text(const struct snapshot *s, const struct view_lane *lane,
                        char buffer[SHARES_BYTES]);

#endif
