/* Compares SSP with BSP for eight workers whose clocks sometimes take five times as long. With SSP
 * a worker need not wait for all other workers in each clock. A sleep emulates the computing. All
 * rows are checked at the end. */
#include "bench/tables/draw.h"
#include "bench/tables/tables.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define WORKERS 8
#define DIM 8
#define KEYS 64
#define SLOW_TIMES 5
#define SLOW_ONE_IN 10

static void compute(const struct tables_worker *w, uint32_t clock, uint64_t usual_ns)
{
    bool is_slow = tables_mix(w->plan->seed + 7, w->rank, clock) % SLOW_ONE_IN == 0;
    uint64_t ns = is_slow ? SLOW_TIMES * usual_ns : usual_ns;
    const struct timespec nap = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    nanosleep(&nap, NULL);
}

static int ahead_clock(struct tables_worker *w, uint32_t clock)
{
    uint64_t keys[KEYS];
    float rows[KEYS * DIM];
    tables_draw_keys(w->plan, w->rank, clock, keys);
    int error = tables_pull(w, keys, KEYS, rows);
    if (error < 0)
        return error;
    compute(w, clock, w->plan->rows > 1000 ? 20 * NS_PER_MS : 2 * NS_PER_MS);
    tables_draw_gradients(w->plan, w->rank, clock, keys, KEYS, rows);
    error = tables_push(w, keys, KEYS, rows);
    return error < 0 ? error : gp_clock(w->job);
}

static int ahead_work(struct tables_worker *w)
{
    uint64_t key = 0;
    float row[DIM];
    int error = tables_make_rows(w);
    struct tables_usage usage = tables_usage_begin(w);
    for (uint32_t clock = 1; error == 0 && clock <= w->plan->clocks; clock++)
        error = ahead_clock(w, clock);
    if (error == 0)
        error = tables_barrier(w);
    tables_usage_end(w, &usage);
    /* with SSP the last pushes are applied only after further clocks: as many clocks as a rank may
     * be ahead */
    for (uint32_t i = 0; error == 0 && i <= w->plan->spec.staleness; i++)
        error = gp_clock(w->job);
    if (error == 0)
        error = tables_pull(w, &key, 1, row);
    if (error == 0)
        error = tables_barrier(w);
    return error == 0 && w->rank == 0 ? tables_check_rows(w) : error;
}

static struct tables_plan ahead_plan(const struct tables *t, enum gp_consistency consistency,
                                     uint32_t staleness)
{
    return (struct tables_plan){.service = &t->service,
                                .transport = "shm",
                                .job = consistency == GP_BSP ? "bsp" : "ssp",
                                .spec = {.name = "rows",
                                         .dim = DIM,
                                         .dtype = GP_F32,
                                         .rule = GP_ROW_SGD,
                                         .combine = GP_SUM,
                                         .consistency = consistency,
                                         .staleness = staleness},
                                .rate = 1,
                                .workers = WORKERS,
                                .rows = t->is_quick ? 1000 : 10000,
                                .batch = KEYS,
                                .clocks = t->is_quick ? 10 : 100,
                                .seed = t->seed,
                                .work = ahead_work};
}

int tables_ahead(struct tables *t)
{
    const struct tables_plan plans[] = {ahead_plan(t, GP_BSP, 0), ahead_plan(t, GP_SSP, 2)};
    uint64_t wrong = 0, wall_ns[2];
    for (size_t i = 0; i < 2; i++) {
        struct tables_board *board;
        int error = tables_crew_run(&plans[i], &board);
        if (error < 0)
            return error;
        wall_ns[i] = board->results[0].wall_ns;
        wrong += tables_board_wrong(board, WORKERS);
        tables_board_free(board);
    }
    tables_print(t, &(struct tables_line){"ssp_of_bsp", "", (double)wall_ns[1] / (double)wall_ns[0],
                                          TABLES_AT_MOST, 0.7, wrong});
    return 0;
}
