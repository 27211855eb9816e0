/* Makes jobs with arrivals and stays from a list of models. The caller owns the models. All
 * settings must use the same random numbers, because jitter would otherwise count as a difference
 * between settings. */
#include "bench/savings/plan.h"

#include "bench/sim/chance.h"
#include "bench/sim/input/csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORWARD_PART (1.0 / 3)
/* Fraction of a turn in which jobs arrive. Jobs leave in the same fraction of the turn at its
 * end. */
#define COMING_PART 0.25
#define ROUNDS_LEAST 8
#define WARM_ROUNDS 2
#define FACTOR_LEAST 0.5
#define FACTOR_MOST 2.0

/* Returns the index-th name of the list, counted cyclically. */
static void name_of(const char *mix, size_t index, char *ret_name, size_t name_bytes)
{
    size_t names = 1;
    for (const char *c = mix; *c; c++)
        names += *c == ',';
    for (index %= names; index > 0; index--)
        mix = strchr(mix, ',') + 1;
    snprintf(ret_name, name_bytes, "%.*s", (int)strcspn(mix, ","), mix);
}

/* Draws the order of leaving, so that the first job does not always leave first. */
static void draw_stays(struct plan *plan)
{
    size_t order[PLAN_JOBS_MAX];
    uint64_t chance = chance_hash(plan->seed, 1);
    double step_ns = COMING_PART * plan->turn_ns / (double)plan->jobs_count;
    for (size_t i = 0; i < plan->jobs_count; i++) {
        size_t other = (size_t)(chance_unit(&chance) * (double)(i + 1));
        order[i] = order[other];
        order[other] = i;
    }
    for (size_t i = 0; i < plan->jobs_count; i++) {
        struct plan_job *job = &plan->jobs[i];
        job->arrive_ns = step_ns * (double)i;
        job->stay_ns = plan->turn_ns - step_ns * (double)order[i] - job->arrive_ns;
    }
}

int plan_make(struct plan *plan, const struct models *models, char *error)
{
    char name[40];
    for (size_t i = 0; i < plan->jobs_count; i++) {
        struct plan_job *job = &plan->jobs[i];
        name_of(plan->mix, i, name, sizeof name);
        job->model = models_find(models, name);
        if (!job->model) {
            snprintf(error, TABLE_ERROR_BYTES, "there is no model '%s' in the tables", name);
            return -EINVAL;
        }
        snprintf(job->name, sizeof job->name, "%s-%zu", name, i + 1);
        job->workers = plan->workers;
        job->step_ns = job->model->step_ns * plan->time_scale;
        job->seed = chance_hash(plan->seed, 2 + i);
    }
    draw_stays(plan);
    return 0;
}

void plan_scale(struct plan *plan, double lane_ns_a_byte, double cores)
{
    double unscaled = 0;
    for (size_t i = 0; i < plan->jobs_count; i++) {
        const struct plan_job *job = &plan->jobs[i];
        unscaled += (double)job->model->elements * sizeof(float) * job->workers * lane_ns_a_byte /
                    job->step_ns;
    }
    plan->bytes_scale = cores / unscaled;
}

uint64_t plan_elements(const struct plan *plan, const struct model_tensor *tensor)
{
    return models_elements(tensor, plan->bytes_scale);
}

uint64_t plan_bytes(const struct plan *plan, const struct plan_job *job)
{
    uint64_t elements = 0;
    for (size_t i = 0; i < job->model->tensors_count; i++)
        elements += plan_elements(plan, &job->model->tensors[i]);
    return elements * sizeof(float);
}

uint32_t plan_rounds(const struct plan_job *job, double stay_ns)
{
    double rounds = stay_ns / job->step_ns;
    return rounds < ROUNDS_LEAST ? ROUNDS_LEAST : (uint32_t)rounds;
}

double plan_step_ns(const struct plan *plan, const struct plan_job *job, uint32_t rank,
                    uint32_t round)
{
    uint64_t chance = chance_hash(chance_hash(job->seed, rank), round);
    double factor = 1 + plan->jitter * chance_normal(&chance);
    return job->step_ns * fmin(fmax(factor, FACTOR_LEAST), FACTOR_MOST);
}

double plan_ready_ns(double step_ns, const struct model_tensor *tensor)
{
    return step_ns * (FORWARD_PART + (1 - FORWARD_PART) * tensor->ready);
}

bool plan_is_checked(uint32_t round, uint32_t rounds)
{
    return round == 0 || round == rounds / 2 || round == rounds - 1;
}

bool plan_is_timed(uint32_t round, uint32_t rounds)
{
    return round > WARM_ROUNDS && !plan_is_checked(round, rounds) &&
           !plan_is_checked(round - 1, rounds);
}

double plan_drawn_ns(const struct plan *plan, const struct plan_job *job, uint32_t rounds)
{
    double sum_ns = 0;
    uint32_t timed = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        double slowest_ns = 0;
        if (!plan_is_timed(round, rounds))
            continue;
        for (uint32_t rank = 0; rank < job->workers; rank++)
            slowest_ns = fmax(slowest_ns, plan_step_ns(plan, job, rank, round));
        sum_ns += slowest_ns;
        timed++;
    }
    return timed ? sum_ns / timed : job->step_ns;
}
