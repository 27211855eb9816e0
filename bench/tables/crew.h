/* The workers of a job with one table, each a process, and their calls of the library, for `tables`
 * and `stages`. Every function of a worker returns 0 or a negative errno; gp_last_error() has the
 * text. */
#ifndef GRADPOOL_BENCH_TABLES_CREW_H
#define GRADPOOL_BENCH_TABLES_CREW_H

#include "bench/lib/own_service.h"
#include "client/gradpool_table.h"

#include <stdatomic.h>

#define TABLES_WORKERS_MAX 8
#define TABLES_BLOCK 65536u /* number of keys of a request in which all rows are made or compared */

/* Figures of one worker. Each part of the bench uses some of these fields. */
struct tables_result {
    uint64_t wrong;
    /* elapsed time; CPU time of the worker; CPU time of the aggregators */
    uint64_t wall_ns, cpu_ns, lanes_ns;
    double p50_ms, p99_ms;
    double value, row_ns;
};

/* Memory that all workers share. */
struct tables_board {
    atomic_bool makes_rows; /* whether a worker makes rows while another worker is measured */
    atomic_bool is_over;
    struct tables_result results[TABLES_WORKERS_MAX];
};

struct tables_worker {
    const struct tables_plan *plan;
    uint32_t rank;
    gp_job *job;
    gp_table *table;
    struct tables_board *board;
    struct tables_result *result; /* result of this worker */
};

struct tables_plan {
    const struct service *service;
    const char *transport, *job;
    gp_table_spec spec; /* rows of f32 */
    double rate;
    uint32_t workers;
    uint64_t rows;   /* number of rows; the keys are 0 to rows - 1 */
    uint32_t batch;  /* number of keys of a request */
    uint32_t clocks; /* number of measured clocks */
    bool is_skewed;  /* whether keys are drawn with a power law; otherwise uniformly */
    uint64_t seed;
    /* function that each worker runs after the declaration of the table */
    int (*work)(struct tables_worker *w);
};

/* Runs the workers, and waits for their ends. `ret_board`: their results. The caller frees it with
 * tables_board_free(). A failure has its text on standard error. */
int tables_crew_run(const struct tables_plan *plan, struct tables_board **ret_board);
void tables_board_free(struct tables_board *board);

/* Return the number of wrong rows, and the CPU time, of all workers together. */
uint64_t tables_board_wrong(const struct tables_board *board, uint32_t workers);
uint64_t tables_board_cpu_ns(const struct tables_board *board, uint32_t workers);

/* Pulls rows, and waits for them. */
int tables_pull(struct tables_worker *w, const uint64_t *keys, size_t count, float *ret_rows);
/* Pushes gradients, and does not wait until they are applied. */
int tables_push(struct tables_worker *w, const uint64_t *keys, size_t count,
                const float *gradients);
int tables_barrier(struct tables_worker *w);

/* Clocks at the start of a measurement. tables_usage_end() writes the differences to w->result. */
struct tables_usage {
    uint64_t wall_ns, cpu_ns, lanes_ns;
};
struct tables_usage tables_usage_begin(const struct tables_worker *w);
void tables_usage_end(struct tables_worker *w, const struct tables_usage *begin);

#endif
