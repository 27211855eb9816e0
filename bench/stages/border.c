/* Measures borders between stages of 8 ranks without work, and the CPU time of a rank that is idle
 * in a long stage. */
#include "bench/savings/statistics.h"
#include "bench/stages/stages.h"
#include "svc/base/clock.h"

#define BORDERS_MAX 200
#define WAIT_MS 60000
#define IDLE_RANK (STAGES_RANKS - 1)

/* Counts a stage with other members than asked for. */
static void check_stage(struct tables_worker *w, const gp_stage *stage, uint32_t workers)
{
    uint32_t place = w->rank < workers ? w->rank : GP_IDLE;
    w->result->wrong += stage->workers != workers || stage->place != place;
}

/* Wide and narrow stages take turns. Rank 0 is a member of all of them. */
static int cross_borders(struct tables_worker *w, uint32_t count)
{
    double ms[BORDERS_MAX];
    gp_stage stage;
    int error = stages_begin(w, "wide", STAGES_RANKS, &stage);
    for (uint32_t i = 0; error == 0 && i < count; i++) {
        bool is_wide = i % 2;
        uint64_t began_ns = clock_now_ns();
        error = gp_stage_end(w->job, WAIT_MS);
        if (error == 0)
            error =
                stages_begin(w, is_wide ? "wide" : "narrow", is_wide ? STAGES_RANKS : 1, &stage);
        ms[i] = (double)(clock_now_ns() - began_ns) / NS_PER_MS;
        check_stage(w, &stage, is_wide ? STAGES_RANKS : 1);
    }
    if (error == 0)
        w->result->p50_ms = statistics_quantile(ms, count, 0.5);
    return error < 0 ? error : gp_stage_end(w->job, WAIT_MS);
}

/* The rate of the plan is not used otherwise: `rows` is the length of the stage in ms. */
static int stay_idle(struct tables_worker *w)
{
    gp_stage stage;
    int error = stages_begin(w, "long", 1, &stage);
    if (error < 0)
        return error;
    check_stage(w, &stage, 1);
    uint64_t cpu_ns = clock_process_cpu_ns(), began_ns = clock_now_ns();
    if (stage.place != GP_IDLE)
        stages_compute((double)w->plan->rows, 1000);
    error = gp_stage_end(w->job, WAIT_MS);
    w->result->cpu_ns = clock_process_cpu_ns() - cpu_ns;
    w->result->wall_ns = clock_now_ns() - began_ns;
    return error;
}

static int border_work(struct tables_worker *w)
{
    gp_stage stage;
    int error = cross_borders(w, w->plan->clocks);
    if (error == 0 && w->plan->rows > 0)
        error = stay_idle(w);
    return error < 0 ? error : stages_begin(w, NULL, 0, &stage);
}

static int border_run(struct tables *t, const char *transport, uint64_t idle_ms,
                      const struct tables_line *line)
{
    struct tables_board *board;
    struct tables_plan plan = stages_plan(t, "border", STAGES_RANKS, border_work);
    plan.transport = transport;
    plan.clocks = t->is_quick ? 20 : BORDERS_MAX;
    plan.rows = idle_ms;
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    struct tables_line measured = *line;
    measured.value = board->results[0].p50_ms;
    measured.wrong = tables_board_wrong(board, plan.workers);
    tables_print(t, &measured);
    const struct tables_result *idle = &board->results[IDLE_RANK];
    if (idle_ms > 0)
        tables_print(t, &(struct tables_line){"idle_cpu_ms_a_minute", "ms",
                                              (double)idle->cpu_ns / NS_PER_MS * 60 * NS_PER_S /
                                                  (double)idle->wall_ns,
                                              TABLES_AT_MOST, 1, measured.wrong});
    tables_board_free(board);
    return 0;
}

int stages_border(struct tables *t)
{
    const struct tables_line shm = {"border_p50_ms", "ms", 0, TABLES_AT_MOST, 5, 0};
    const struct tables_line tcp = {"border_p50_ms_tcp", "ms", 0, TABLES_AT_MOST, 15, 0};
    int error = border_run(t, "shm", t->is_quick ? 2000 : 30000, &shm);
    return error < 0 ? error : border_run(t, "tcp", 0, &tcp);
}
