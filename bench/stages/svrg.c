/* SVRG (Johnson and Zhang, 2013): a wide phase computes the gradient over all samples; a narrow
 * phase makes many steps, each with the gradients of a few samples at the present weights and at
 * the weights of the wide phase. */
#include "bench/stages/stages.h"
#include "bench/tables/draw.h"
#include "svc/base/clock.h"

#include <string.h>

#define WEIGHTS 0 /* key of the weights */
#define FULL 1    /* key of the sum of all gradients */
#define BATCH 8u
#define RATE 0.1f
#define FULL_US 100.0 /* computation of a gradient in the wide phase */
#define STEP_US 50.0  /* computation of both gradients of a sample in the narrow phase */

static const struct stages_phase wide = {"full", STAGES_RANKS}, narrow = {"steps", 1};

/* ---- the arithmetic of one member ---- */

/* Writes what a member pushes in the wide phase. The rule subtracts, so the row gets the sum. */
static void full_part(const struct tables_plan *plan, uint32_t place, uint32_t workers,
                      const float *weights, float *ret_push)
{
    float sum[STAGES_DIM] = {0};
    const struct stages_part part = stages_part((uint32_t)plan->rows, place, workers);
    for (uint32_t sample = part.first; sample < part.end; sample++)
        linear_add(plan->seed, sample, weights, sum);
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        ret_push[i] = -sum[i];
}

/* Writes what a member pushes in a narrow step. `then`: weights of the wide phase; `full`: sum of
 * all gradients at these weights. */
static void step_part(const struct tables_plan *plan, uint32_t number, uint32_t place,
                      uint32_t workers, const float *weights, const float *then, const float *full,
                      float *ret_push)
{
    float now_sum[STAGES_DIM] = {0}, then_sum[STAGES_DIM] = {0};
    const struct stages_part part = stages_part(BATCH, place, workers);
    for (uint32_t k = part.first; k < part.end; k++) {
        uint32_t sample = (uint32_t)(tables_mix(plan->seed, number, k) % plan->rows);
        linear_add(plan->seed, sample, weights, now_sum);
        linear_add(plan->seed, sample, then, then_sum);
    }
    for (uint32_t i = 0; i < STAGES_DIM; i++) {
        float mean = place == 0 ? full[i] / (float)plan->rows : 0;
        ret_push[i] = RATE * ((now_sum[i] - then_sum[i]) / BATCH + mean);
    }
}

/* ---- a worker ---- */

static int full_work(struct tables_worker *w, const gp_stage *stage, float *ret_weights)
{
    float push[STAGES_DIM];
    uint32_t share = (uint32_t)w->plan->rows / stage->workers;
    int error = stages_pull(w, WEIGHTS, ret_weights);
    full_part(w->plan, stage->place, stage->workers, ret_weights, push);
    stages_compute(share, FULL_US);
    if (error == 0)
        error = stages_push(w, FULL, push);
    return error < 0 ? error : gp_clock(w->job);
}

/* The first member removes the sum in its first step. */
static int steps_work(struct tables_worker *w, const gp_stage *stage, uint32_t epoch,
                      const float *then)
{
    float full[STAGES_DIM], weights[STAGES_DIM], push[STAGES_DIM];
    int error = stages_pull(w, FULL, full);
    if (error == 0 && stage->place == 0)
        error = stages_push(w, FULL, full);
    for (uint32_t step = 0; error == 0 && step < w->plan->clocks; step++) {
        error = stages_pull(w, WEIGHTS, weights);
        step_part(w->plan, epoch * w->plan->clocks + step, stage->place, stage->workers, weights,
                  then, full, push);
        stages_compute((double)BATCH / stage->workers, STEP_US);
        if (error == 0)
            error = stages_push(w, WEIGHTS, push);
        if (error == 0)
            error = gp_clock(w->job);
    }
    return error;
}

static int svrg_epoch(struct tables_worker *w, uint32_t epoch)
{
    float then[STAGES_DIM];
    gp_stage stage;
    int error = phase_begin(w, &wide, &stage);
    if (error == 0 && stage.place != GP_IDLE)
        error = full_work(w, &stage, then);
    if (error == 0)
        error = phase_end(w);
    if (error == 0)
        error = phase_begin(w, &narrow, &stage);
    if (error == 0 && stage.place != GP_IDLE)
        error = steps_work(w, &stage, epoch, then);
    return error < 0 ? error : phase_end(w);
}

/* ---- the replay ---- */

/* Applies the pushes of all members as a lane does: sum in the order of ranks, one subtraction. */
struct replay {
    float weights[STAGES_DIM], full[STAGES_DIM], sum[STAGES_DIM];
};

static void replay_add(struct replay *r, uint32_t place, const float *push)
{
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        r->sum[i] = place == 0 ? push[i] : r->sum[i] + push[i];
}

static void replay_apply(const struct replay *r, float *row)
{
    for (uint32_t i = 0; i < STAGES_DIM; i++)
        row[i] -= r->sum[i];
}

static void replay_epoch(const struct tables_plan *plan, struct replay *r, uint32_t epoch)
{
    uint32_t many = phase_workers(plan, &wide), few = phase_workers(plan, &narrow);
    float push[STAGES_DIM], then[STAGES_DIM];
    memcpy(then, r->weights, sizeof then);
    memset(r->full, 0, sizeof r->full);
    for (uint32_t place = 0; place < many; place++) {
        full_part(plan, place, many, then, push);
        replay_add(r, place, push);
    }
    replay_apply(r, r->full);
    for (uint32_t step = 0; step < plan->clocks; step++) {
        for (uint32_t place = 0; place < few; place++) {
            step_part(plan, epoch * plan->clocks + step, place, few, r->weights, then, r->full,
                      push);
            replay_add(r, place, push);
        }
        replay_apply(r, r->weights);
    }
}

/* Trains until the loss is a thousandth of the first loss, or for 20 epochs. Returns the number of
 * epochs. */
static uint32_t replay_train(const struct tables_plan *plan, struct replay *r)
{
    uint32_t epoch = 0;
    *r = (struct replay){0};
    double target = linear_loss(plan->seed, (uint32_t)plan->rows, r->weights) / 1000;
    while (epoch < 20 && linear_loss(plan->seed, (uint32_t)plan->rows, r->weights) > target)
        replay_epoch(plan, r, epoch++);
    return epoch;
}

static int svrg_work(struct tables_worker *w)
{
    struct replay expected;
    float weights[STAGES_DIM];
    uint32_t epochs = replay_train(w->plan, &expected);
    gp_stage stage;
    int error = tables_barrier(w);
    uint64_t began_ns = clock_now_ns();
    for (uint32_t epoch = 0; error == 0 && epoch < epochs; epoch++)
        error = svrg_epoch(w, epoch);
    w->result->wall_ns = clock_now_ns() - began_ns;
    if (error == 0 && w->plan->batch == 0)
        error = stages_begin(w, NULL, 0, &stage);
    if (error == 0)
        error = stages_pull(w, WEIGHTS, weights);
    w->result->wrong += linear_wrong(weights, expected.weights);
    return error;
}

int stages_svrg(struct tables *t)
{
    const struct stages_names names = {"svrg_time_of_best", "svrg_slots_of_best",
                                       "svrg_best_workers"};
    struct tables_plan plan = stages_plan(t, "svrg", 0, svrg_work);
    plan.rows = t->is_quick ? 256 : 4096;
    plan.clocks = t->is_quick ? 60 : 128;
    return stages_compare(t, &plan, &names, 0.6);
}
