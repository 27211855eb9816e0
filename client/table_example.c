/* A whole program with a table of rows. Each worker reads rank, size, job and endpoint from its
 * environment, and runs on the host of the service: gradpool run --workers 2 ./table_example */
#include "gradpool_table.h"

#include <stdint.h>
#include <stdio.h>

#define WORDS 3

static int table_example_fail(void)
{
    fprintf(stderr, "%s\n", gp_last_error());
    return 1;
}

/* Pulls the rows of the batch, and waits for them. */
static int example_pull(gp_batch *batch, float *rows)
{
    gp_request *request;
    int error = gp_pull(batch, rows, &request);
    return error < 0 ? error : gp_wait(request, 5000);
}

/* One clock: each row moves towards the score of its word. */
static int example_step(gp_job *job, gp_batch *batch, const float *scores)
{
    float rows[WORDS], gradients[WORDS];
    int error = example_pull(batch, rows);
    if (error < 0)
        return error;
    for (int i = 0; i < WORDS; i++)
        gradients[i] = rows[i] - scores[i];
    error = gp_push(batch, gradients, NULL);
    return error < 0 ? error : gp_clock(job);
}

int main(void)
{
    const uint64_t words[WORDS] = {7, 42, 1000000007};
    const float scores[WORDS] = {1, 2, 3};
    const gp_table_spec spec = {
        .name = "words", .dim = 1, .dtype = GP_F32, .rule = GP_ROW_SGD, .combine = GP_MEAN};
    const gp_row_settings settings = {.rate = 0.5};
    gp_client *client;
    gp_job *job;
    gp_job_spec worker;
    gp_table *table;
    gp_batch *batch;
    float rows[WORDS];

    if (gp_job_spec_from_environment(&worker) < 0 || gp_connect(NULL, NULL, &client) < 0 ||
        gp_job_join(client, &worker, &job) < 0 || gp_table_declare(job, &spec, &table) < 0 ||
        gp_table_set(table, &settings) < 0 || gp_batch_create(table, words, WORDS, &batch) < 0)
        return table_example_fail();
    for (int clock = 0; clock < 20; clock++)
        if (example_step(job, batch, scores) < 0)
            return table_example_fail();
    if (example_pull(batch, rows) < 0)
        return table_example_fail();
    for (int i = 0; i < WORDS; i++)
        printf("word %ju: %.3f\n", (uintmax_t)words[i], rows[i]);
    gp_disconnect(client);
    return 0;
}
