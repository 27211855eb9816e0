/* Values of a job, in one table for top, metrics, page and JSON. For a new value, add a line to the
 * table in figures.c. */
#ifndef GRADPOOL_OPS_SNAPSHOT_FIGURES_H
#define GRADPOOL_OPS_SNAPSHOT_FIGURES_H

#include "svc/ops/snapshot/snapshot.h"

#define FIGURE_BYTES 64

enum figure_unit { FIGURE_COUNT, FIGURE_CORES, FIGURE_BYTES_PER_S, FIGURE_SECONDS, FIGURE_RATIO };

struct figure {
    const char *name;  /* member in JSON; the metric is "gradpool_job_" followed by this name */
    const char *title; /* title of the column; a column is left out if no job has the value */
    const char *help;
    enum figure_unit unit;
    bool is_metric; /* false: Prometheus computes this value from counters */
    double (*value)(const struct view_job *job); /* NAN: unknown */
};

extern const struct figure job_figures[]; /* ends with a NULL name */

/* Returns the number of cores that the job would use with dedicated servers: one for each worker. A
 * job of one worker needs no server, so its number is 0 (O5). */
double job_dedicated(const struct view_job *job);
/* Returns the measured loss, from 0 to 1, or NAN if it is unknown. */
double job_loss(const struct view_job *job);
/* Returns the part of the measured loss that is due to waiting for lanes; NAN: unknown. */
double job_shared_loss(const struct view_job *job);
/* Returns whether any job has the value. */
bool figure_is_known(const struct figure *figure, const struct view_jobs *jobs);
/* Writes a value such as "0.25", "3 MiB/s", "12 ms" or "4.0 %", or "-" if it is unknown. Returns
 * the buffer. */
const char *figure_text(enum figure_unit unit, double value, char buffer[FIGURE_BYTES]);

#define JOB_LABEL_BYTES 256
/* Writes "tenant/job", or "job" for a job without a tenant. Returns the buffer. */
const char *job_label(const struct view_job *job, char buffer[JOB_LABEL_BYTES]);

/* Returns the number of dedicated cores minus allocated cores; NAN without jobs. */
double cores_saved(const struct view_cores *cores);
/* Returns whether the service uses the lane's core. False: the lane is parked, or withheld and
 * without tasks. The thread of such a lane sleeps, and other programs can use its core. */
bool lane_is_allocated(const struct view_lane *lane);
/* Returns "up", or the state in which no task is placed on the lane, such as "parked", "closing" or
 * "silent". */
const char *lane_state_text(const struct view_aggregator *a, const struct view_lane *lane);

#define SHARES_SHOWN 4
#define SHARES_BYTES 1200
/* Writes the largest shares, such as "a 62 %, acme/b 38 %", followed by the number of further
 * shares. Returns the buffer. */
const char *shares_text(const struct snapshot *s, const struct view_lane *lane,
                        char buffer[SHARES_BYTES]);

#endif
