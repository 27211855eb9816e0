/* Measures a stage with an automatic number of workers, search included, beside the same stage with
 * each fixed number of workers. */
#include "bench/stages/stages.h"
#include "svc/base/clock.h"

#include <stdio.h>

#define WAIT_MS 60000
#define BATCH 64u     /* units of a step */
#define UNIT_US 100.0 /* computation of a unit */
#define KEY 0

/* One step of all members: each pushes the sum of its units, which are 1. */
static int automatic_step(struct tables_worker *w, const gp_stage *stage)
{
    float row[STAGES_DIM], sum[STAGES_DIM];
    int error = stages_pull(w, KEY, row);
    const struct stages_part part = stages_part(BATCH, stage->place, stage->workers);
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        sum[i] = (float)(part.end - part.first);
    stages_compute(part.end - part.first, UNIT_US);
    if (error == 0)
        error = stages_push(w, KEY, sum);
    return error < 0 ? error : gp_clock(w->job);
}

/* Runs the steps of a stage, or of a trial. An idle rank has none. */
static int automatic_steps(struct tables_worker *w, const gp_stage *stage, uint64_t units)
{
    for (uint64_t unit = stage->cursor; stage->place != GP_IDLE && unit < units; unit += BATCH) {
        int result = automatic_step(w, stage);
        if (result == 0)
            result = gp_stage_step(w->job, BATCH);
        if (result != 0)
            return result < 0 ? result : 0;
    }
    return 0;
}

/* Runs a stage, trial after trial. */
static int automatic_stage(struct tables_worker *w, const char *name, uint32_t workers)
{
    gp_stage stage;
    int result = 1;
    while (result == 1) {
        result = stages_begin(w, name, workers, &stage);
        if (result == 0)
            result = automatic_steps(w, &stage, (uint64_t)w->plan->clocks * BATCH);
        if (result == 0)
            result = gp_stage_end(w->job, WAIT_MS);
    }
    return result;
}

/* The time of stage i, with i workers of {automatic, 1, 2, 4, 8}, is in p50_ms of result i. */
static int automatic_work(struct tables_worker *w)
{
    static const uint32_t workers[] = {0, 1, 2, 4, 8};
    uint32_t count = sizeof workers / sizeof *workers;
    float row[STAGES_DIM];
    char name[16];
    gp_stage stage;
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < count; i++) {
        snprintf(name, sizeof name, "stage-%u", workers[i]);
        uint64_t began_ns = clock_now_ns();
        error = automatic_stage(w, name, workers[i]);
        if (w->rank == 0)
            w->board->results[i].p50_ms = (double)(clock_now_ns() - began_ns) / NS_PER_MS;
    }
    if (error == 0)
        error = stages_begin(w, NULL, 0, &stage);
    if (error == 0)
        error = stages_pull(w, KEY, row);
    for (uint32_t i = 0; error == 0 && i < STAGES_DIM; i++)
        w->result->wrong += row[i] != -(float)(count * w->plan->clocks * BATCH);
    return error;
}

int stages_automatic(struct tables *t)
{
    struct tables_board *board;
    struct tables_plan plan = stages_plan(t, "automatic", STAGES_RANKS, automatic_work);
    plan.clocks = t->is_quick ? 60 : 1600;
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    double best = board->results[1].p50_ms;
    for (uint32_t i = 2; i < 5; i++)
        best = board->results[i].p50_ms < best ? board->results[i].p50_ms : best;
    tables_print(t, &(struct tables_line){"automatic_of_best", "", board->results[0].p50_ms / best,
                                          TABLES_AT_MOST, 1.1,
                                          tables_board_wrong(board, plan.workers)});
    tables_board_free(board);
    return 0;
}
