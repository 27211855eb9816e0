/* The figures that are shown of a job: one table for top, metrics, page and JSON. A new one is one
 * line in figures.c. */
#ifndef GRADPOOL_OPS_SNAPSHOT_FIGURES_H
#define GRADPOOL_OPS_SNAPSHOT_FIGURES_H

#include "svc/ops/snapshot/snapshot.h"

#define FIGURE_BYTES 64

enum figure_unit { FIGURE_COUNT, FIGURE_CORES, FIGURE_BYTES_PER_S, FIGURE_SECONDS, FIGURE_RATIO };

struct figure {
    const char *name;  /* member in JSON; with "gradpool_job_" before it, the metric */
    const char *title; /* of the column; one that no job knows is left out */
    const char *help;
    enum figure_unit unit;
    bool is_metric;                              /* false: Prometheus makes it of counters */
    double (*value)(const struct view_job *job); /* NAN: not known */
};

extern const struct figure job_figures[]; /* ends with a NULL name */

/* Cores that servers of its own would hold: one a worker; a job of one worker has nothing to sum
 * with others, and needs none (O5). */
double job_dedicated(const struct view_job *job);
/* Measured, 0 to 1; NAN: not known. */
double job_loss(const struct view_job *job);
/* As much of that as lanes explain. */
double job_shared_loss(const struct view_job *job);
/* Whether any job knows it. */
bool figure_is_known(const struct figure *figure, const struct view_jobs *jobs);
/* "0.25", "3 MiB/s", "12 ms", "4.0 %", or "-" for what is not known. Returns the buffer. */
const char *figure_text(enum figure_unit unit, double value, char buffer[FIGURE_BYTES]);

#define JOB_LABEL_BYTES 256
/* "tenant/job", or "job" of the local tenant. Returns the buffer. */
const char *job_label(const struct view_job *job, char buffer[JOB_LABEL_BYTES]);

/* NAN without jobs: nothing is saved then, nor lost. */
double cores_saved(const struct view_cores *cores);
/* One that is parked, or withheld without tasks, sleeps: its core is anybody's. */
bool lane_is_allocated(const struct view_lane *lane);
/* "up", or what keeps jobs from it: "parked", "closing", "silent", ... */
const char *lane_state_text(const struct view_aggregator *a, const struct view_lane *lane);

#define SHARES_SHOWN 4
#define SHARES_BYTES 1200
/* "a 62 %, acme/b 38 %": the largest, then how many more there are. Returns the buffer. */
const char *shares_text(const struct snapshot *s, const struct view_lane *lane,
                        char buffer[SHARES_BYTES]);

#endif
