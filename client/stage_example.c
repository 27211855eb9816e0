/* A whole program with stages: all workers count units, then one worker at a time. Rank, size, job
 * and endpoint are read from the environment: gradpool run --workers 3 ./stage_example */
#include "gradpool_stage.h"

#include <stdint.h>
#include <stdio.h>

#define UNITS 300 /* number of units of each stage */
#define BATCH 10
#define STAGES 4

static int stage_example_fail(void)
{
    fprintf(stderr, "%s\n", gp_last_error());
    return 1;
}

/* One step: this rank's part of the batch is added to the count, the only row of the table. */
static int example_count(gp_job *job, gp_batch *row, const gp_stage *stage)
{
    uint32_t first = BATCH * stage->place / stage->workers;
    float gradient = (float)first - (float)(BATCH * (stage->place + 1) / stage->workers);
    int error = gp_push(row, &gradient, NULL);
    return error < 0 ? error : gp_clock(job);
}

/* The steps of a member, until the stage is over or a trial ends. */
static int example_steps(gp_job *job, gp_batch *row, const gp_stage *stage)
{
    int result = 0;
    for (uint64_t unit = stage->cursor; unit < UNITS && result == 0; unit += BATCH) {
        result = example_count(job, row, stage);
        if (result == 0)
            result = gp_stage_step(job, BATCH);
    }
    return result < 0 ? result : 0;
}

/* One stage. An automatic stage is several trials, each with its own members. */
static int example_stage(gp_job *job, gp_batch *row, const gp_stage_spec *spec)
{
    gp_stage stage;
    int result;
    do {
        result = gp_stage_next(job, spec, 0, &stage);
        if (result == 0 && stage.place != GP_IDLE)
            result = example_steps(job, row, &stage);
        if (result == 0)
            result = gp_stage_end(job, 0);
    } while (result == 1);
    return result;
}

static int example_train(gp_job *job, gp_batch *row)
{
    const gp_stage_spec wide = {.name = "wide", .goal = GP_FRUGAL};
    const gp_stage_spec narrow = {.name = "narrow", .workers = 1, .visit = GP_TRAVEL};
    gp_stage all;
    int error = 0;
    for (int i = 0; i < STAGES && error == 0; i++)
        error = example_stage(job, row, i % 2 ? &narrow : &wide);
    return error < 0 ? error : gp_stage_next(job, NULL, 0, &all);
}

int main(void)
{
    const gp_table_spec spec = {
        .name = "count", .dim = 1, .dtype = GP_F32, .rule = GP_ROW_SGD, .combine = GP_SUM};
    const gp_row_settings settings = {.rate = 1};
    const uint64_t key = 0;
    gp_client *client;
    gp_job *job;
    gp_job_spec worker;
    gp_table *table;
    gp_batch *row;
    gp_request *request;
    float count;

    if (gp_job_spec_from_environment(&worker) < 0 || gp_connect(NULL, NULL, &client) < 0 ||
        gp_job_join(client, &worker, &job) < 0 || gp_table_declare(job, &spec, &table) < 0 ||
        gp_table_set(table, &settings) < 0 || gp_batch_create(table, &key, 1, &row) < 0 ||
        example_train(job, row) < 0 || gp_pull(row, &count, &request) < 0 ||
        gp_wait(request, 0) < 0)
        return stage_example_fail();
    printf("units: %.0f\n", count);
    gp_disconnect(client);
    return 0;
}
