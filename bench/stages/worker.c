/* Calls of a worker in stages. */
#include "bench/stages/stages.h"

#include <stdio.h>
#include <time.h>

#define WAIT_MS 60000

int stages_begin(const struct tables_worker *w, const char *name, uint32_t workers,
                 gp_stage *ret_stage)
{
    const gp_stage_spec spec = {.name = name, .workers = workers};
    return gp_stage_next(w->job, name ? &spec : NULL, WAIT_MS, ret_stage);
}

void stages_compute(double units, double unit_us)
{
    uint64_t ns = (uint64_t)(units * unit_us * 1e3);
    const struct timespec nap = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&nap, NULL);
}

int stages_pull(struct tables_worker *w, uint64_t key, float *ret_row)
{
    return tables_pull(w, &key, 1, ret_row);
}

int stages_push(struct tables_worker *w, uint64_t key, const float *gradient)
{
    return tables_push(w, &key, 1, gradient);
}

struct tables_plan stages_plan(const struct tables *t, const char *job, uint32_t workers,
                               int (*work)(struct tables_worker *w))
{
    return (struct tables_plan){.service = &t->service,
                                .transport = "shm",
                                .job = job,
                                .spec = {.name = "weights",
                                         .dim = STAGES_DIM,
                                         .shards = 1,
                                         .dtype = GP_F32,
                                         .rule = GP_ROW_SGD,
                                         .combine = GP_SUM},
                                .rate = 1,
                                .workers = workers,
                                .seed = t->seed,
                                .work = work};
}
