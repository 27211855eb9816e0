/* Measures the memory of rows beyond their values and moments, from the output of `gradpool
 * jobs`. */
#include "bench/savings/look.h"
#include "bench/tables/draw.h"
#include "bench/tables/tables.h"

#define DIM 4
#define JOB "memory"

static int memory_work(struct tables_worker *w)
{
    uint64_t rows = w->plan->rows, own_bytes = rows * 2 * DIM * sizeof(float);
    struct look_table seen = {0};
    int error = tables_make_rows(w);
    if (error == 0)
        error = look_at_tables(w->plan->service, JOB, &seen, 1);
    w->result->wrong = seen.rows != rows || seen.births != rows || seen.pushed_keys != rows;
    w->result->value = ((double)seen.bytes - (double)own_bytes) / (double)rows;
    return error < 0 ? error : 0;
}

int tables_memory(struct tables *t)
{
    struct tables_board *board;
    const struct tables_plan plan = {.service = &t->service,
                                     .transport = "shm",
                                     .job = JOB,
                                     .spec = {.name = "rows",
                                              .dim = DIM,
                                              .dtype = GP_F32,
                                              .rule = GP_ROW_ADAGRAD,
                                              .combine = GP_SUM},
                                     .rate = 1,
                                     .workers = 1,
                                     .rows = t->is_quick ? 50000 : 10000000,
                                     .seed = t->seed,
                                     .work = memory_work};
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    tables_print(t, &(struct tables_line){"row_bytes_beyond", "bytes", board->results[0].value,
                                          TABLES_AT_MOST, 32, board->results[0].wrong});
    tables_board_free(board);
    return 0;
}
