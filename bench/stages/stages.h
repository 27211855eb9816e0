/* The parts of `gradpool-bench stages`. The workers are those of `tables` (tables/crew.h), and so
 * are the lines that are printed. */
#ifndef GRADPOOL_BENCH_STAGES_STAGES_H
#define GRADPOOL_BENCH_STAGES_STAGES_H

#include "bench/tables/tables.h"
#include "client/gradpool_stage.h"

#define STAGES_RANKS TABLES_WORKERS_MAX
#define STAGES_DIM 16 /* values of a row */

/* Each part runs its jobs, prints its lines, and adds to t->wrong. Returns 0 or a negative errno,
 * with a text on standard error. */
int stages_border(struct tables *t);    /* borders of 8 ranks; CPU of an idle rank */
int stages_hand_over(struct tables *t); /* values for new members, beside a broadcast and a file */
int stages_svrg(struct tables *t);      /* wide and narrow stages beside fixed numbers of workers */
int stages_batch(struct tables *t);     /* a growing batch beside fixed numbers of workers */
int stages_automatic(struct tables *t); /* the automatic number of workers beside the best one */

/* ---- functions of the workers (worker.c) ---- */

/* Begins the next stage with `workers` members, or ends all stages (`name` NULL). */
int stages_begin(const struct tables_worker *w, const char *name, uint32_t workers,
                 gp_stage *ret_stage);
/* Emulates the computation of `units` units of `unit_us` us each. */
void stages_compute(double units, double unit_us);
/* Pulls one row. */
int stages_pull(struct tables_worker *w, uint64_t key, float *ret_row);
/* Pushes one row. */
int stages_push(struct tables_worker *w, uint64_t key, const float *gradient);
/* Returns the plan of a job of `workers` ranks with one BSP table, whose rule subtracts each pushed
 * sum. */
struct tables_plan stages_plan(const struct tables *t, const char *job, uint32_t workers,
                               int (*work)(struct tables_worker *w));

/* ---- stages beside fixed numbers of workers (modes.c) ---- */

/* A part of a training with its own number of workers. plan->batch is the fixed number of workers;
 * 0: the training has a stage for each phase. */
struct stages_phase {
    const char *name;
    uint32_t workers;
};
/* Begin and end a phase. With a fixed number of workers all ranks are members of all phases. The
 * time of a member counts as slot time. */
int phase_begin(struct tables_worker *w, const struct stages_phase *phase, gp_stage *ret_stage);
int phase_end(struct tables_worker *w);
/* Returns the number of members of a phase. */
uint32_t phase_workers(const struct tables_plan *plan, const struct stages_phase *phase);
/* Names of the printed figures: ratio of times, ratio of slot times, fastest fixed number. */
struct stages_names {
    const char *time, *slots, *best;
};
/* Runs the training with stages and with 1, 2, 4 and 8 workers, in turns. Prints the medians of the
 * time and of the slot time with stages, divided by those of the fastest fixed number. `plan`:
 * without workers. */
int stages_compare(struct tables *t, const struct tables_plan *plan,
                   const struct stages_names *names, double slots_bar);

/* ---- linear regression on drawn samples (linear.c) ---- */

/* Writes the gradient of a sample at these weights. */
void linear_gradient(uint64_t seed, uint32_t sample, const float *weights, float *ret_gradient);
/* Adds the gradient of a sample to a sum. */
void linear_add(uint64_t seed, uint32_t sample, const float *weights, float *sum);
/* Returns the mean loss over the first `samples` samples. */
double linear_loss(uint64_t seed, uint32_t samples, const float *weights);
/* Returns the number of the values that have other bits. */
uint64_t linear_wrong(const float *values, const float *expected);

/* Part `place` of `parts` equal parts of `count` units. */
struct stages_part {
    uint32_t first, end;
};
static inline struct stages_part stages_part(uint32_t count, uint32_t place, uint32_t parts)
{
    return (struct stages_part){(uint32_t)((uint64_t)count * place / parts),
                                (uint32_t)((uint64_t)count * (place + 1) / parts)};
}

#endif
