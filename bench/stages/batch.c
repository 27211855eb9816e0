/* Stochastic gradient descent with a batch that grows fourfold from phase to phase. Small batches
 * have work for one worker, large ones for eight. */
#include "bench/stages/stages.h"
#include "bench/tables/draw.h"
#include "svc/base/clock.h"

#define WEIGHTS 0 /* key of the weights */
#define RATE 0.5f
#define UNIT_US 20.0 /* computation of a gradient */
#define SAMPLES 4096u

static const struct growing_phase {
    struct stages_phase stage;
    uint32_t batch;
} phases[] = {
    {{"batch-8", 1}, 8}, {{"batch-32", 2}, 32}, {{"batch-128", 4}, 128}, {{"batch-512", 8}, 512}};
#define PHASES (sizeof phases / sizeof *phases)

/* Writes what a member pushes in a step. */
static void batch_part(const struct tables_plan *plan, const struct growing_phase *phase,
                       uint32_t step, const gp_stage *stage, const float *weights, float *ret_push)
{
    float sum[STAGES_DIM] = {0};
    const struct stages_part part = stages_part(phase->batch, stage->place, stage->workers);
    for (uint32_t k = part.first; k < part.end; k++)
        linear_add(plan->seed, (uint32_t)(tables_mix(plan->seed, step, k) % SAMPLES), weights, sum);
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        ret_push[i] = RATE * sum[i] / (float)phase->batch;
}

/* Number of a step over all phases. */
static uint32_t batch_step_number(const struct tables_plan *plan, const struct growing_phase *phase,
                                  uint32_t step)
{
    return (uint32_t)(phase - phases) * plan->clocks + step;
}

static int batch_steps(struct tables_worker *w, const struct growing_phase *phase,
                       const gp_stage *stage)
{
    float weights[STAGES_DIM], push[STAGES_DIM];
    int error = 0;
    for (uint32_t step = 0; error == 0 && step < w->plan->clocks; step++) {
        error = stages_pull(w, WEIGHTS, weights);
        batch_part(w->plan, phase, batch_step_number(w->plan, phase, step), stage, weights, push);
        stages_compute((double)phase->batch / stage->workers, UNIT_US);
        if (error == 0)
            error = stages_push(w, WEIGHTS, push);
        if (error == 0)
            error = gp_clock(w->job);
    }
    return error;
}

/* Applies all steps as a lane does. */
static void batch_replay(const struct tables_plan *plan, float *ret_weights)
{
    float push[STAGES_DIM], sum[STAGES_DIM] = {0};
    for (uint32_t number = 0; number < PHASES * plan->clocks; number++) {
        const struct growing_phase *phase = &phases[number / plan->clocks];
        gp_stage stage = {.workers = phase_workers(plan, &phase->stage)};
        for (stage.place = 0; stage.place < stage.workers; stage.place++) {
            batch_part(plan, phase, number, &stage, ret_weights, push);
            for (uint32_t i = 0; i < STAGES_DIM; i++)
                sum[i] = stage.place == 0 ? push[i] : sum[i] + push[i];
        }
        for (uint32_t i = 0; i < STAGES_DIM; i++)
            ret_weights[i] -= sum[i];
    }
}

static int batch_train(struct tables_worker *w)
{
    gp_stage stage;
    int error = tables_barrier(w);
    uint64_t began_ns = clock_now_ns();
    for (size_t i = 0; error == 0 && i < PHASES; i++) {
        error = phase_begin(w, &phases[i].stage, &stage);
        if (error == 0 && stage.place != GP_IDLE)
            error = batch_steps(w, &phases[i], &stage);
        if (error == 0)
            error = phase_end(w);
    }
    w->result->wall_ns = clock_now_ns() - began_ns;
    return error;
}

static int batch_work(struct tables_worker *w)
{
    float weights[STAGES_DIM], expected[STAGES_DIM] = {0};
    gp_stage stage;
    int error = batch_train(w);
    if (error == 0 && w->plan->batch == 0)
        error = stages_begin(w, NULL, 0, &stage);
    if (error == 0)
        error = stages_pull(w, WEIGHTS, weights);
    if (error < 0)
        return error;
    batch_replay(w->plan, expected);
    w->result->wrong += linear_wrong(weights, expected);
    return 0;
}

int stages_batch(struct tables *t)
{
    const struct stages_names names = {"batch_time_of_best", "batch_slots_of_best",
                                       "batch_best_workers"};
    struct tables_plan plan = stages_plan(t, "batch", 0, batch_work);
    plan.clocks = t->is_quick ? 8 : 100;
    return stages_compare(t, &plan, &names, 0.75);
}
