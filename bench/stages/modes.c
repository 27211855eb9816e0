/* Runs a training with stages, and with fixed numbers of workers. */
#include "bench/stages/stages.h"
#include "svc/base/clock.h"

#define WAIT_MS 60000

uint32_t phase_workers(const struct tables_plan *plan, const struct stages_phase *phase)
{
    return plan->batch > 0 ? plan->batch : phase->workers;
}

int phase_begin(struct tables_worker *w, const struct stages_phase *phase, gp_stage *ret_stage)
{
    int error = 0;
    if (w->plan->batch > 0)
        *ret_stage = (gp_stage){.workers = w->plan->workers, .place = w->rank};
    else
        error = stages_begin(w, phase->name, phase->workers, ret_stage);
    bool is_member = error == 0 && ret_stage->place != GP_IDLE;
    w->result->row_ns = is_member ? (double)clock_now_ns() : 0;
    return error;
}

int phase_end(struct tables_worker *w)
{
    int error = w->plan->batch > 0 ? 0 : gp_stage_end(w->job, WAIT_MS);
    if (w->result->row_ns > 0)
        w->result->value += ((double)clock_now_ns() - w->result->row_ns) / NS_PER_S;
    return error;
}

/* The figures of one run. */
struct mode {
    double s, slot_s;
    uint64_t wrong;
};

static int mode_run(const struct tables_plan *base, uint32_t fixed, struct mode *ret_mode)
{
    struct tables_board *board;
    struct tables_plan plan = *base;
    plan.batch = fixed;
    plan.workers = fixed > 0 ? fixed : STAGES_RANKS;
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    *ret_mode = (struct mode){.s = (double)board->results[0].wall_ns / NS_PER_S,
                              .wrong = tables_board_wrong(board, plan.workers)};
    for (uint32_t rank = 0; rank < plan.workers; rank++)
        ret_mode->slot_s += board->results[rank].value;
    tables_board_free(board);
    return 0;
}

int stages_compare(struct tables *t, const struct tables_plan *plan, const char *const names[2],
                   double slots_bar)
{
    struct mode staged, best = {0}, mode;
    int error = mode_run(plan, 0, &staged);
    uint64_t wrong = error < 0 ? 0 : staged.wrong;
    for (uint32_t fixed = 1; error == 0 && fixed <= STAGES_RANKS; fixed *= 2) {
        error = mode_run(plan, fixed, &mode);
        wrong += error < 0 ? 0 : mode.wrong;
        if (error == 0 && (fixed == 1 || mode.s < best.s))
            best = mode;
    }
    if (error < 0)
        return error;
    tables_print(t,
                 &(struct tables_line){names[0], "", staged.s / best.s, TABLES_AT_MOST, 1, wrong});
    tables_print(t, &(struct tables_line){names[1], "", staged.slot_s / best.slot_s, TABLES_AT_MOST,
                                          slots_bar, wrong});
    return 0;
}
