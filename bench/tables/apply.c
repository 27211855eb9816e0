/* Compares updates of rows on a lane with the same updates in the row store alone. The row store
 * also has the expected rows: after all clocks the bits of all rows are compared. */
#include "bench/tables/draw.h"
#include "bench/tables/floor.h"
#include "bench/tables/tables.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIM 16
#define RATE 0.1
#define EPSILON 1e-10
#define WAIT_MS 60000

struct apply {
    struct floor *floor;
    uint64_t floor_ns; /* CPU time of all measured updates */
    uint64_t updates;  /* number of measured updates */
    uint64_t lanes_ns;
    uint64_t *keys;
    float *gradients, *rows;
};

static void apply_draw(const struct tables_worker *w, uint32_t clock, size_t count,
                       const struct apply *a)
{
    for (size_t i = 0; i < count; i++)
        for (size_t element = 0; element < DIM; element++)
            a->gradients[i * DIM + element] =
                (float)(tables_mix(clock, a->keys[i], element + w->plan->seed) >> 40) * 0x1p-23f -
                1;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Keeps each key only once. Returns the number of different keys. */
static size_t keys_unique(uint64_t *keys, size_t count)
{
    size_t kept = 0;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || keys[i] != keys[i - 1])
            keys[kept++] = keys[i];
    return kept;
}

/* Pushes the gradients, and waits until the lane has applied them. */
static int apply_on_lane(struct tables_worker *w, size_t count, struct apply *a)
{
    gp_batch *batch;
    gp_request *request;
    int error = gp_batch_create(w->table, a->keys, count, &batch);
    if (error < 0)
        return error;
    error = gp_push(batch, a->gradients, &request);
    uint64_t before_ns = service_lanes_cpu_ns(w->plan->service);
    if (error == 0)
        error = gp_clock(w->job);
    if (error == 0)
        error = gp_wait(request, WAIT_MS);
    a->lanes_ns += service_lanes_cpu_ns(w->plan->service) - before_ns;
    gp_batch_free(batch);
    return error;
}

static int apply_on_floor(size_t count, struct apply *a)
{
    struct floor_batch *batch = floor_batch_create(a->floor, a->keys, count, a->gradients);
    if (!batch)
        return -ENOMEM;
    uint64_t before_ns = clock_thread_cpu_ns();
    int error = floor_apply(a->floor, batch);
    a->floor_ns += clock_thread_cpu_ns() - before_ns;
    a->updates += count;
    floor_batch_free(batch);
    return error;
}

static int apply_clock(struct tables_worker *w, uint32_t clock, size_t count, struct apply *a)
{
    apply_draw(w, clock, count, a);
    int error = apply_on_lane(w, count, a);
    return error < 0 ? error : apply_on_floor(count, a);
}

/* Makes all rows in clocks of up to TABLES_BLOCK keys. The times of these clocks are not
 * measured. */
static int apply_make_rows(struct tables_worker *w, struct apply *a)
{
    int error = 0;
    for (uint64_t first = 0; error == 0 && first < w->plan->rows; first += TABLES_BLOCK) {
        uint64_t left = w->plan->rows - first;
        size_t count = left < TABLES_BLOCK ? (size_t)left : TABLES_BLOCK;
        for (size_t i = 0; i < count; i++)
            a->keys[i] = first + i;
        error = apply_clock(w, UINT32_MAX, count, a);
    }
    a->floor_ns = a->lanes_ns = a->updates = 0;
    return error;
}

static int apply_measure(struct tables_worker *w, struct apply *a)
{
    int error = 0;
    for (uint32_t clock = 1; error == 0 && clock <= w->plan->clocks; clock++) {
        tables_draw_keys(w->plan, 0, clock, a->keys);
        error = apply_clock(w, clock, keys_unique(a->keys, w->plan->batch), a);
    }
    w->result->value = (double)a->floor_ns / (double)a->lanes_ns;
    w->result->row_ns = (double)a->lanes_ns / (double)a->updates;
    return error;
}

static int apply_check(struct tables_worker *w, const struct apply *a)
{
    for (uint64_t first = 0; first < w->plan->rows; first += TABLES_BLOCK) {
        uint64_t left = w->plan->rows - first;
        size_t count = left < TABLES_BLOCK ? (size_t)left : TABLES_BLOCK;
        for (size_t i = 0; i < count; i++)
            a->keys[i] = first + i;
        int error = tables_pull(w, a->keys, count, a->rows);
        if (error < 0)
            return error;
        for (size_t i = 0; i < count; i++) {
            const float *row = floor_row(a->floor, a->keys[i]);
            w->result->wrong += !row || memcmp(row, a->rows + i * DIM, DIM * sizeof *row) != 0;
        }
    }
    return 0;
}

static int apply_work(struct tables_worker *w)
{
    size_t values = (size_t)TABLES_BLOCK * DIM;
    struct apply a = {.floor = floor_create(DIM, RATE, EPSILON),
                      .keys = malloc(TABLES_BLOCK * sizeof *a.keys),
                      .gradients = malloc(values * sizeof *a.gradients),
                      .rows = malloc(values * sizeof *a.rows)};
    int error = a.floor && a.keys && a.gradients && a.rows ? 0 : -ENOMEM;
    if (error == 0)
        error = apply_make_rows(w, &a);
    if (error == 0)
        error = apply_measure(w, &a);
    if (error == 0)
        error = apply_check(w, &a);
    floor_free(a.floor);
    free(a.keys);
    free(a.gradients);
    free(a.rows);
    return error;
}

int tables_apply(struct tables *t)
{
    struct tables_board *board;
    const struct tables_plan plan = {.service = &t->service,
                                     .transport = "shm",
                                     .job = "apply",
                                     .spec = {.name = "rows",
                                              .dim = DIM,
                                              .dtype = GP_F32,
                                              .rule = GP_ROW_ADAGRAD,
                                              .combine = GP_SUM},
                                     .rate = RATE,
                                     .workers = 1,
                                     .rows = t->is_quick ? 80000 : 8000000,
                                     .batch = t->is_quick ? 2000 : 16384,
                                     .clocks = t->is_quick ? 5 : 200,
                                     .seed = t->seed,
                                     .work = apply_work};
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    const struct tables_result *result = &board->results[0];
    tables_print(t, &(struct tables_line){"apply_of_floor", "", result->value, TABLES_AT_LEAST, 0.7,
                                          result->wrong});
    tables_print(
        t, &(struct tables_line){"apply_row_ns", "ns", result->row_ns, .wrong = result->wrong});
    tables_board_free(board);
    return 0;
}
