/* Two workers pull, push and end their clocks. Keys and gradients are drawn before the measurement,
 * and rows are compared after it. */
#include "bench/savings/statistics.h"
#include "bench/tables/draw.h"
#include "bench/tables/tables.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdlib.h>

#define WORKERS 2
#define DIM 16

struct exchange {
    uint64_t *keys;
    float *gradients, *rows;
    double *clock_ms; /* time of each clock, with its pull and push */
};

static void exchange_fini(struct exchange *x)
{
    free(x->keys);
    free(x->gradients);
    free(x->rows);
    free(x->clock_ms);
}

static int exchange_init(const struct tables_worker *w, struct exchange *x)
{
    const struct tables_plan *plan = w->plan;
    size_t batch = plan->batch, values = batch * DIM;
    *x = (struct exchange){.keys = calloc(plan->clocks, batch * sizeof *x->keys),
                           .gradients = calloc(plan->clocks, values * sizeof *x->gradients),
                           .rows = calloc(values, sizeof *x->rows),
                           .clock_ms = calloc(plan->clocks, sizeof *x->clock_ms)};
    if (!x->keys || !x->gradients || !x->rows || !x->clock_ms)
        return -ENOMEM;
    for (uint32_t i = 0; i < plan->clocks; i++) {
        tables_draw_keys(plan, w->rank, i + 1, x->keys + i * batch);
        tables_draw_gradients(plan, w->rank, i + 1, x->keys + i * batch, batch,
                              x->gradients + i * values);
    }
    return 0;
}

static int exchange_clock(struct tables_worker *w, struct exchange *x, uint32_t i)
{
    size_t batch = w->plan->batch;
    uint64_t began_ns = clock_now_ns();
    int error = tables_pull(w, x->keys + i * batch, batch, x->rows);
    if (error == 0)
        error = tables_push(w, x->keys + i * batch, batch, x->gradients + i * batch * DIM);
    if (error == 0)
        error = gp_clock(w->job);
    x->clock_ms[i] = (double)(clock_now_ns() - began_ns) / NS_PER_MS;
    return error;
}

/* Measures all clocks. The last pull waits until the last clock is applied. */
static int exchange_measure(struct tables_worker *w, struct exchange *x)
{
    struct tables_usage usage = tables_usage_begin(w);
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < w->plan->clocks; i++)
        error = exchange_clock(w, x, i);
    if (error == 0)
        error = tables_pull(w, x->keys, 1, x->rows);
    if (error == 0)
        error = tables_barrier(w);
    tables_usage_end(w, &usage);
    w->result->p50_ms = statistics_quantile(x->clock_ms, w->plan->clocks, 0.5);
    return error;
}

static int exchange_work(struct tables_worker *w)
{
    struct exchange x;
    int error = exchange_init(w, &x);
    if (error == 0)
        error = tables_make_rows(w);
    if (error == 0)
        error = exchange_measure(w, &x);
    if (error == 0 && w->rank == 0)
        error = tables_check_rows(w);
    exchange_fini(&x);
    return error;
}

static struct tables_plan exchange_plan(const struct tables *t, const char *transport)
{
    return (struct tables_plan){.service = &t->service,
                                .transport = transport,
                                .job = "exchange",
                                .spec = {.name = "rows",
                                         .dim = DIM,
                                         .dtype = GP_F32,
                                         .rule = GP_ROW_SGD,
                                         .combine = GP_SUM},
                                .rate = 1,
                                .workers = WORKERS,
                                .rows = t->is_quick ? 20000 : 1000000,
                                .batch = t->is_quick ? 2000 : 16384,
                                .clocks = t->is_quick ? 5 : 40,
                                .is_skewed = true,
                                .seed = t->seed,
                                .work = exchange_work};
}

/* Prints the CPU time of all processes for a million rows that are pulled and pushed. */
static void exchange_print(struct tables *t, const struct tables_plan *plan, const char *name,
                           const struct tables_board *board)
{
    bool is_shm = plan->transport[0] == 's';
    double rows = (double)plan->batch * plan->clocks * plan->workers;
    uint64_t cpu_ns = tables_board_cpu_ns(board, plan->workers) + board->results[0].lanes_ns;
    tables_print(t, &(struct tables_line){.name = name,
                                          .unit = "s",
                                          .value = (double)cpu_ns / NS_PER_S / (rows / 1e6),
                                          .kind = is_shm ? TABLES_AT_MOST : TABLES_NO_BAR,
                                          .bar = 0.6,
                                          .wrong = tables_board_wrong(board, plan->workers)});
}

static int exchange_run(struct tables *t, const struct tables_plan *plan, const char *cpu,
                        const char *clock)
{
    struct tables_board *board;
    int error = tables_crew_run(plan, &board);
    if (error < 0)
        return error;
    if (cpu)
        exchange_print(t, plan, cpu, board);
    tables_print(t, &(struct tables_line){.name = clock,
                                          .unit = "ms",
                                          .value = board->results[0].p50_ms,
                                          .wrong = tables_board_wrong(board, plan->workers)});
    tables_board_free(board);
    return 0;
}

/* Clocks of few keys show the cost of a clock itself. */
static struct tables_plan exchange_small(const struct tables *t, const char *transport)
{
    struct tables_plan plan = exchange_plan(t, transport);
    plan.job = "clocks";
    plan.batch = 256;
    plan.rows = 20000;
    plan.clocks = t->is_quick ? 10 : 200;
    return plan;
}

/* One shard shows the cost of a clock without the division of its keys and rows into 64 shares. */
static struct tables_plan exchange_one_shard(const struct tables *t)
{
    struct tables_plan plan = exchange_small(t, "tcp");
    plan.spec.shards = 1;
    return plan;
}

int tables_exchange(struct tables *t)
{
    const struct exchange_line {
        struct tables_plan plan;
        const char *cpu, *clock; /* names of the printed lines; NULL: the line is not printed */
    } lines[] = {
        {exchange_plan(t, "shm"), "exchange_cpu_s_shm", "exchange_clock_ms_shm"},
        {exchange_plan(t, "tcp"), "exchange_cpu_s_tcp", "exchange_clock_ms_tcp"},
        {exchange_small(t, "shm"), NULL, "small_clock_ms_shm"},
        {exchange_small(t, "tcp"), NULL, "small_clock_ms_tcp"},
        {exchange_one_shard(t), NULL, "one_shard_clock_ms_tcp"},
    };
    int error = 0;
    for (size_t i = 0; error == 0 && i < sizeof lines / sizeof *lines; i++)
        error = exchange_run(t, &lines[i].plan, lines[i].cpu, lines[i].clock);
    return error;
}
