/* Owns the processes of the workers and their shared memory. */
#include "bench/tables/crew.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"
#include "svc/base/err.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUN_NS (600 * NS_PER_S)
#define WAIT_MS 60000

/* ---- calls of a worker ---- */

int tables_pull(struct tables_worker *w, const uint64_t *keys, size_t count, float *ret_rows)
{
    gp_batch *batch;
    gp_request *request;
    int error = gp_batch_create(w->table, keys, count, &batch);
    if (error < 0)
        return error;
    error = gp_pull(batch, ret_rows, &request);
    if (error == 0)
        error = gp_wait(request, WAIT_MS);
    gp_batch_free(batch);
    return error;
}

int tables_push(struct tables_worker *w, const uint64_t *keys, size_t count, const float *gradients)
{
    gp_batch *batch;
    int error = gp_batch_create(w->table, keys, count, &batch);
    if (error < 0)
        return error;
    error = gp_push(batch, gradients, NULL);
    gp_batch_free(batch);
    return error;
}

int tables_barrier(struct tables_worker *w) { return gp_barrier(w->job, WAIT_MS); }

struct tables_usage tables_usage_begin(const struct tables_worker *w)
{
    return (struct tables_usage){.wall_ns = clock_now_ns(),
                                 .cpu_ns = clock_process_cpu_ns(),
                                 .lanes_ns = service_lanes_cpu_ns(w->plan->service)};
}

void tables_usage_end(struct tables_worker *w, const struct tables_usage *begin)
{
    struct tables_usage end = tables_usage_begin(w);
    w->result->wall_ns = end.wall_ns - begin->wall_ns;
    w->result->cpu_ns = end.cpu_ns - begin->cpu_ns;
    w->result->lanes_ns = end.lanes_ns - begin->lanes_ns;
}

/* ---- processes ---- */

static int worker_declare(struct tables_worker *w)
{
    const gp_row_settings settings = {.rate = w->plan->rate, .epsilon = 1e-10};
    int error = gp_table_declare(w->job, &w->plan->spec, &w->table);
    return error < 0 ? error : gp_table_set(w->table, &settings);
}

static int worker_run(struct tables_worker *w)
{
    const struct tables_plan *plan = w->plan;
    const gp_job_spec spec = {.name = plan->job, .rank = w->rank, .workers = plan->workers};
    const gp_options options = {.transport = plan->transport};
    gp_client *client;
    int error = gp_connect(plan->service->endpoint, &options, &client);
    if (error == 0)
        error = gp_job_join(client, &spec, &w->job);
    if (error == 0)
        error = worker_declare(w);
    if (error == 0)
        error = plan->work(w);
    if (error == 0)
        error = tables_barrier(w);
    if (error == 0)
        gp_disconnect(client);
    else
        fprintf(stderr, "gradpool-bench: rank %u of %s: %s\n", w->rank, plan->job,
                *gp_last_error() ? gp_last_error() : err_text(error));
    return error;
}

static int crew_start(const struct tables_plan *plan, struct tables_board *board, uint32_t rank)
{
    pid_t pid = process_fork(SIGKILL);
    if (pid != 0)
        return pid;
    struct tables_worker w = {
        .plan = plan, .rank = rank, .board = board, .result = &board->results[rank]};
    _exit(worker_run(&w) < 0);
}

int tables_crew_run(const struct tables_plan *plan, struct tables_board **ret_board)
{
    uint64_t deadline_ns = clock_now_ns() + RUN_NS;
    pid_t pids[TABLES_WORKERS_MAX] = {0};
    int error = 0;
    struct tables_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < plan->workers; rank++) {
        pids[rank] = crew_start(plan, board, rank);
        error = pids[rank] < 0 ? pids[rank] : error;
    }
    for (uint32_t rank = 0; rank < plan->workers; rank++)
        if (pids[rank] > 0 && process_reap(pids[rank], deadline_ns) != 0)
            error = -EIO;
    if (error < 0)
        tables_board_free(board);
    else
        *ret_board = board;
    return error;
}

void tables_board_free(struct tables_board *board) { munmap(board, sizeof *board); }

uint64_t tables_board_wrong(const struct tables_board *board, uint32_t workers)
{
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < workers; rank++)
        wrong += board->results[rank].wrong;
    return wrong;
}

uint64_t tables_board_cpu_ns(const struct tables_board *board, uint32_t workers)
{
    uint64_t cpu_ns = 0;
    for (uint32_t rank = 0; rank < workers; rank++)
        cpu_ns += board->results[rank].cpu_ns;
    return cpu_ns;
}
