/* Measures pulls of one worker from an asynchronous table: first alone, then while another worker
 * makes rows. */
#include "bench/savings/statistics.h"
#include "bench/tables/draw.h"
#include "bench/tables/tables.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdlib.h>

#define DIM 16
#define KEYS 4096
#define PULLS_MAX 1000

/* Memory of one worker. */
struct latency {
    uint64_t keys[KEYS];
    float rows[KEYS * DIM];
    double pull_ms[PULLS_MAX];
};

static uint64_t count_wrong_rows(const struct latency *l)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < KEYS; i++)
        for (uint32_t element = 0; element < DIM; element++)
            if (l->rows[i * DIM + element] != -tables_factor(element)) {
                wrong++;
                break;
            }
    return wrong;
}

/* Pulls rows of random keys, and compares each. Returns 0 or a negative errno. */
static int pull_many(struct tables_worker *w, struct latency *l, uint32_t first)
{
    for (uint32_t i = 0; i < w->plan->clocks; i++) {
        tables_draw_keys(w->plan, 0, first + i, l->keys);
        uint64_t began_ns = clock_now_ns();
        int error = tables_pull(w, l->keys, KEYS, l->rows);
        l->pull_ms[i] = (double)(clock_now_ns() - began_ns) / NS_PER_MS;
        if (error < 0)
            return error;
        w->result->wrong += count_wrong_rows(l);
    }
    return 0;
}

static int latency_pull(struct tables_worker *w, struct latency *l)
{
    uint32_t count = w->plan->clocks;
    int error = pull_many(w, l, 1);
    w->result->p50_ms = statistics_quantile(l->pull_ms, count, 0.5);
    atomic_store(&w->board->makes_rows, true);
    if (error == 0)
        error = tables_barrier(w);
    if (error == 0)
        error = pull_many(w, l, count + 1);
    w->result->p99_ms = statistics_quantile(l->pull_ms, count, 0.99);
    atomic_store(&w->board->is_over, true);
    return error;
}

/* Makes rows of new keys, one block after the other, until the pulls are over. */
static int latency_make(struct tables_worker *w, struct latency *l)
{
    uint64_t next = w->plan->rows;
    int error = tables_barrier(w);
    while (error == 0 && !atomic_load(&w->board->is_over)) {
        for (size_t i = 0; i < KEYS; i++)
            l->keys[i] = next++;
        tables_draw_gradients(w->plan, 0, 0, l->keys, KEYS, l->rows);
        error = tables_push(w, l->keys, KEYS, l->rows);
        if (error == 0) /* the pull waits for this rank's push, so only one push is open */
            error = tables_pull(w, l->keys, KEYS, l->rows);
        if (error == 0)
            w->result->wrong += count_wrong_rows(l);
    }
    return error;
}

static int latency_work(struct tables_worker *w)
{
    struct latency *l = malloc(sizeof *l);
    int error = l ? tables_make_rows(w) : -ENOMEM;
    if (error == 0)
        error = w->rank == 0 ? latency_pull(w, l) : latency_make(w, l);
    free(l);
    return error;
}

static struct tables_plan latency_plan(const struct tables *t, const char *transport)
{
    return (struct tables_plan){.service = &t->service,
                                .transport = transport,
                                .job = "latency",
                                .spec = {.name = "rows",
                                         .dim = DIM,
                                         .dtype = GP_F32,
                                         .rule = GP_ROW_SGD,
                                         .combine = GP_SUM,
                                         .consistency = GP_ASP},
                                .rate = 1,
                                .workers = 2,
                                .rows = t->is_quick ? 20000 : 1000000,
                                .batch = KEYS,
                                .clocks = t->is_quick ? 20 : PULLS_MAX,
                                .seed = t->seed,
                                .work = latency_work};
}

static int latency_shm(struct tables *t)
{
    struct tables_board *board;
    const struct tables_plan plan = latency_plan(t, "shm");
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    const struct tables_result *pulls = &board->results[0];
    uint64_t wrong = tables_board_wrong(board, plan.workers);
    tables_print(
        t, &(struct tables_line){"pull_p50_ms", "ms", pulls->p50_ms, TABLES_AT_MOST, 0.6, wrong});
    tables_print(t, &(struct tables_line){"pull_p99_of_p50", "", pulls->p99_ms / pulls->p50_ms,
                                          TABLES_AT_MOST, 3, wrong});
    tables_board_free(board);
    return 0;
}

static int latency_tcp(struct tables *t)
{
    struct tables_board *board;
    const struct tables_plan plan = latency_plan(t, "tcp");
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    tables_print(t, &(struct tables_line){.name = "pull_p50_ms_tcp",
                                          .unit = "ms",
                                          .value = board->results[0].p50_ms,
                                          .wrong = tables_board_wrong(board, plan.workers)});
    tables_board_free(board);
    return 0;
}

int tables_latency(struct tables *t)
{
    int error = latency_shm(t);
    return error < 0 ? error : latency_tcp(t);
}
