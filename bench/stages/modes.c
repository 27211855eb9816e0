/* Runs a training with stages, and with fixed numbers of workers. */
#include "bench/savings/statistics.h"
#include "bench/stages/stages.h"
#include "svc/base/clock.h"

#include <string.h>

#define WAIT_MS 60000
#define TURNS_MAX 3
#define MODES 5 /* with stages, and with 1, 2, 4 and 8 workers */

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

/* The figures of one mode: with stages (`fixed` 0), or with a fixed number of workers. */
struct mode {
    uint32_t fixed;
    double s[TURNS_MAX], slot_s[TURNS_MAX];
    uint64_t wrong;
};

static int mode_run(const struct tables_plan *base, struct mode *mode, uint32_t turn)
{
    struct tables_board *board;
    struct tables_plan plan = *base;
    plan.batch = mode->fixed;
    plan.workers = mode->fixed > 0 ? mode->fixed : STAGES_RANKS;
    int error = tables_crew_run(&plan, &board);
    if (error < 0)
        return error;
    mode->s[turn] = (double)board->results[0].wall_ns / NS_PER_S;
    mode->wrong += tables_board_wrong(board, plan.workers);
    for (uint32_t rank = 0; rank < plan.workers; rank++)
        mode->slot_s[turn] += board->results[rank].value;
    tables_board_free(board);
    return 0;
}

static double mode_median(const double *values, uint32_t turns)
{
    double copy[TURNS_MAX];
    memcpy(copy, values, turns * sizeof *copy);
    return statistics_quantile(copy, turns, 0.5);
}

/* Returns the fixed number of workers with the shortest time. */
static const struct mode *modes_best(const struct mode *modes, uint32_t turns)
{
    const struct mode *best = &modes[1];
    for (uint32_t i = 2; i < MODES; i++)
        if (mode_median(modes[i].s, turns) < mode_median(best->s, turns))
            best = &modes[i];
    return best;
}

static void modes_print(struct tables *t, const struct mode *modes, uint32_t turns,
                        const struct stages_names *names, double slots_bar)
{
    const struct mode *staged = &modes[0], *best = modes_best(modes, turns);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < MODES; i++)
        wrong += modes[i].wrong;
    double time = mode_median(staged->s, turns) / mode_median(best->s, turns);
    double slots = mode_median(staged->slot_s, turns) / mode_median(best->slot_s, turns);
    tables_print(t, &(struct tables_line){names->time, "", time, TABLES_AT_MOST, 1, wrong});
    tables_print(t,
                 &(struct tables_line){names->slots, "", slots, TABLES_AT_MOST, slots_bar, wrong});
    tables_print(t, &(struct tables_line){names->best, "", best->fixed, TABLES_NO_BAR, 0, wrong});
}

int stages_compare(struct tables *t, const struct tables_plan *plan,
                   const struct stages_names *names, double slots_bar)
{
    struct mode modes[MODES] = {
        {.fixed = 0}, {.fixed = 1}, {.fixed = 2}, {.fixed = 4}, {.fixed = 8}};
    uint32_t turns = t->is_quick ? 1 : TURNS_MAX;
    int error = 0;
    for (uint32_t turn = 0; turn < turns; turn++)
        for (uint32_t i = 0; error == 0 && i < MODES; i++)
            error = mode_run(plan, &modes[i], turn);
    if (error == 0)
        modes_print(t, modes, turns, names, slots_bar);
    return error;
}
