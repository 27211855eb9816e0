/* Values of a job, in one table for top, metrics, page and JSON. A new value is one more line in
 * figures.c. */
#ifndef GRADPOOL_OPS_SNAPSHOT_FIGURES_H
#define GRADPOOL_OPS_SNAPSHOT_FIGURES_H

#include "svc/ops/snapshot/snapshot.h"

#define FIGURE_BYTES 64

enum figure_unit { FIGURE_COUNT, FIGURE_CORES, FIGURE_BYTES_PER_S, FIGURE_SECONDS, FIGURE_RATIO };

struct figure {
    const char *name;  /* member in JSON; the metric is "gradpool_job_" followed by this name */
    const char *title; /* title of the column, which is left out if no job has the value */
    const char *help;
    enum figure_unit unit;
    bool is_metric; /* false: Prometheus computes this value from counters */
    double (*value)(const struct view_job *job); /* NAN: unknown */
};

extern const struct figure job_figures[]; /* ends with a NULL name */

/* Returns the number of cores that the job would use with servers of its own: one for each worker.
 * None for a job of one worker, which has nothing to sum (O5). */
double job_dedicated(const struct view_job *job);
/* Returns the measured loss, 0 to 1; NAN: unknown. */
double job_loss(const struct view_job *job);
/* Returns the part of the loss that waiting for lanes explains. */
double job_shared_loss(const struct view_job *job);
/* Returns whether any job has the value. */
bool figure_is_known(const struct figure *figure, const struct view_jobs *jobs);
/* Writes a value such as "0.25", "3 MiB/s", "12 ms" or "4.0 %"; "-": unknown. Returns the
 * buffer. */
const char *figure_text(enum figure_unit unit, double value, char buffer[FIGURE_BYTES]);

#define JOB_LABEL_BYTES 256
/* Writes "tenant/job", or "job" for jobs without a tenant. Returns the buffer. */
const char *job_label(const struct view_job *job, char buffer[JOB_LABEL_BYTES]);

/* Returns dedicated cores minus allocated ones; NAN without jobs. */
double cores_saved(const struct view_cores *cores);
/* Returns false for a lane that is parked, or withheld without tasks. It sleeps, and its core is
 * free for other programs. */
bool lane_is_allocated(const struct view_lane *lane);
/* Returns "up", or the state that keeps jobs off the lane: "parked", "closing", "silent", ... */
const char *lane_state_text(const struct view_aggregator *a, const struct view_lane *lane);

#define SHARES_SHOWN 4
#define SHARES_BYTES 1200
/* Writes the largest shares, such as "a 62 %, acme/b 38 %", and then the number of the others.
 * Returns the buffer. */
const char *shares_text(const struct snapshot *s, const struct view_lane *lane,
                        char buffer[SHARES_BYTES]);

#endif
