/* Reads the list of jobs from a file, and owns the list. An inconsistent row is an error with file
 * and line. */
#include "bench/sim/input/workload.h"

#include "bench/sim/input/csv.h"
#include "bench/sim/lanes/queue.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 1e9

enum { COLUMN_ID, COLUMN_SUBMIT, COLUMN_DURATION, COLUMN_WORKERS, COLUMN_MODEL };

int workload_add(struct workload *workload, const struct workload_job *job)
{
    struct workload_job *jobs;

    /* doubles the array at each power of two */
    if ((workload->count & (workload->count - 1)) == 0) {
        jobs =
            reallocarray(workload->jobs, workload->count ? 2 * workload->count : 1, sizeof(*jobs));
        if (!jobs)
            return -ENOMEM;
        workload->jobs = jobs;
    }
    workload->jobs[workload->count++] = *job;
    return 0;
}

static int read_row(struct table *table, const struct models *models, struct workload_job *ret_job)
{
    struct workload_job job = {.model = models_find(models, table_text(table, COLUMN_MODEL))};
    double submit_s, duration_s, workers;
    int r = table_number(table, COLUMN_SUBMIT, 0, SECONDS_MAX, &submit_s);

    if (r == 0)
        r = table_number(table, COLUMN_DURATION, 0, SECONDS_MAX, &duration_s);
    if (r == 0)
        r = table_number(table, COLUMN_WORKERS, 1, QUEUE_WORKERS_MAX, &workers);
    if (r < 0)
        return r;
    if (workers != floor(workers))
        return table_complain(table, "workers: expected a whole number, got %g", workers);
    if (!job.model && workers > 1)
        return table_complain(table, "model: expected one with a table, got '%.40s'",
                              table_text(table, COLUMN_MODEL));
    snprintf(job.name, sizeof(job.name), "%s", table_text(table, COLUMN_ID));
    job.submit_ns = (uint64_t)(submit_s * 1e9);
    job.end_ns = job.submit_ns + (uint64_t)(duration_s * 1e9);
    job.workers = (uint32_t)workers;
    *ret_job = job;
    return 0;
}

static int add_row(struct workload *workload, struct table *table, const struct models *models,
                   uint64_t *latest_ns)
{
    struct workload_job job;
    int r = read_row(table, models, &job);

    if (r < 0)
        return r;
    if (job.submit_ns < *latest_ns)
        return table_complain(table, "submit_s: expected rows in order of submission");
    *latest_ns = job.submit_ns;
    if (job.workers == 1) {
        workload->single++;
        return 0;
    }
    r = workload_add(workload, &job);
    return r < 0 ? table_complain(table, "no memory"), r : 0;
}

/* Removes jobs that arrive after the end of the clock, and shortens jobs that would run longer. */
static void cut_at_end(struct workload *workload)
{
    while (workload->count > 0 && workload->jobs[workload->count - 1].submit_ns >= workload->end_ns)
        workload->count--;
    for (size_t i = 0; i < workload->count; i++)
        if (workload->jobs[i].end_ns > workload->end_ns)
            workload->jobs[i].end_ns = workload->end_ns;
}

int workload_read(struct workload *workload, const char *path, double hours,
                  const struct models *models, char *error)
{
    static const char *const names[] = {"job_id",  "submit_s", "duration_s",
                                        "workers", "model",    NULL};
    struct table table;
    uint64_t latest_ns = 0;
    int r;

    *workload = (struct workload){0};
    r = table_open(&table, path, names);
    while (r >= 0 && (r = table_next(&table)) > 0)
        r = add_row(workload, &table, models, &latest_ns);
    if (r == 0 && workload->count == 0)
        r = table_complain(&table, "expected a job of two or more workers, there is none");
    if (r < 0)
        memcpy(error, table.error, sizeof(table.error));
    table_close(&table);
    if (r < 0) {
        workload_fini(workload);
        return r;
    }
    workload->end_ns = hours > 0 ? (uint64_t)(hours * (double)NS_PER_HOUR)
                                 : (latest_ns / NS_PER_HOUR + 1) * NS_PER_HOUR;
    cut_at_end(workload);
    return 0;
}

void workload_fini(struct workload *workload)
{
    free(workload->jobs);
    *workload = (struct workload){0};
}
