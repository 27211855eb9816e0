/* Owns one run: its clock, the gradients in progress, the parameters. Reads the real clock only to
 * measure a decision. The measured time must never affect the run. */
#include "bench/backup/training/virtual.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "svc/base/clock.h"

#define NS 1e9 /* nanoseconds of the rule's clock in a unit of time */
#define EVALUATE_ROUNDS 4
/* a target is reached when the mean of this number of evaluations is at or below it */
#define EVALUATIONS 3
#define DIVERGED 1000 /* a run whose loss is this multiple of its first loss has diverged */

struct run {
    const struct virtual_setting *setting;
    struct virtual_result result;
    struct backup *backup;
    struct durations durations;
    struct problem problem;
    /* `moment`: time of the next decision if no gradient arrives earlier */
    double now, moment;
    double ends[GRID_WORKERS_MAX]; /* end of each rank's gradient in progress; INFINITY: none */
    /* sum of the gradients of the closed round, and later their mean */
    float sum[PROBLEM_FLOATS_MAX];
    float former[PROBLEM_FLOATS_MAX]; /* mean gradient of the previous round */
    float gradient[PROBLEM_FLOATS_MAX];
    double losses[EVALUATIONS], first_loss;
    uint32_t evaluations, reached;
    uint64_t decisions, decide_ns;
};

static uint64_t to_ns(double t) { return (uint64_t)(t * NS + 0.5); }

/* --- the clock --- */

static void run_begin(struct run *run, uint32_t rank)
{
    run->ends[rank] = run->now + durations_draw(&run->durations, rank, run->now);
    backup_began(run->backup, rank, to_ns(run->now));
}

static uint32_t run_next(const struct run *run)
{
    uint32_t next = 0;
    for (uint32_t i = 1; i < run->setting->grid->workers; i++)
        if (run->ends[i] < run->ends[next])
            next = i;
    return next;
}

/* Returns whether the rule closes the round now. */
static bool run_decides(struct run *run)
{
    struct backup_decision d;
    uint64_t before_ns = clock_now_ns();
    backup_decide(run->backup, to_ns(run->now), &d);
    run->decide_ns += clock_now_ns() - before_ns;
    run->decisions++;
    run->moment = d.until_ns == BACKUP_NEVER_NS ? INFINITY : (double)d.until_ns / NS;
    for (size_t i = 0; i < d.go_on_count; i++)
        run->ends[d.go_on[i]] = run->now + durations_draw(&run->durations, d.go_on[i], run->now);
    return d.verb == BACKUP_CLOSE;
}

/* Handles the next event. Returns whether this event closes the round. */
static bool run_event(struct run *run)
{
    uint32_t rank = run_next(run);
    if (run->moment < run->ends[rank]) {
        run->now = run->moment > run->now ? run->moment : run->now;
        return run_decides(run);
    }
    run->now = run->ends[rank];
    run->ends[rank] = INFINITY;
    if (backup_arrived(run->backup, rank, to_ns(run->now)) == BACKUP_COUNTED)
        return run_decides(run);
    run_begin(run, rank);
    return false;
}

/* --- a round --- */

static double dot(const float *a, const float *b, size_t count)
{
    double sum[4] = {0};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] += (double)a[i + j] * b[i + j];
    for (; i < count; i++)
        sum[0] += (double)a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Adds the gradients of the round, sorted by rank, then by number. */
static void run_sum(struct run *run, struct backup_measure *measure)
{
    size_t floats = run->problem.floats;
    memset(run->sum, 0, floats * sizeof *run->sum);
    for (uint32_t rank = 0; rank < run->setting->grid->workers; rank++)
        for (uint32_t i = backup_counted(run->backup, rank); i > 0; i--) {
            measure->loss += problem_gradient(&run->problem, run->gradient);
            measure->squares += dot(run->gradient, run->gradient, floats);
            measure->inputs++;
            for (size_t j = 0; j < floats; j++)
                run->sum[j] += run->gradient[j];
        }
}

/* Divides the sum by the number of gradients in the round, not by the number of workers. */
static struct backup_measure run_average(struct run *run)
{
    struct backup_measure measure = {.product = NAN};
    size_t floats = run->problem.floats;
    run_sum(run, &measure);
    float inputs = (float)measure.inputs;
    for (size_t i = 0; i < floats; i++)
        run->sum[i] /= inputs;
    measure.mean = dot(run->sum, run->sum, floats);
    measure.loss /= measure.inputs;
    measure.rate = problem_rate(&run->problem, run->result.rounds);
    if (run->result.rounds > 0)
        measure.product = dot(run->sum, run->former, floats);
    memcpy(run->former, run->sum, floats * sizeof *run->sum);
    return measure;
}

static void run_count(struct run *run, const struct backup_measure *measure)
{
    uint32_t workers = run->setting->grid->workers, outside = 0;
    for (uint32_t rank = 0; rank < workers; rank++) {
        uint32_t absence = backup_absence(run->backup, rank);
        outside += absence > 0;
        if (absence > run->result.absence)
            run->result.absence = absence;
    }
    run->result.dropped += (double)outside / workers;
    run->result.k_mean += measure->inputs;
    run->result.rounds++;
}

static void run_round(struct run *run)
{
    bool waits = run->setting->straggler == STRAGGLER_WAIT;
    run->moment = INFINITY;
    while (!run_event(run))
        continue;
    struct backup_measure measure = run_average(run);
    problem_step(&run->problem, run->sum, (float)measure.rate);
    backup_closed(run->backup, to_ns(run->now));
    backup_measured(run->backup, &measure);
    for (uint32_t rank = 0; rank < run->setting->grid->workers; rank++)
        if (!waits || run->ends[rank] == INFINITY)
            run_begin(run, rank);
    run_count(run, &measure);
}

/* --- targets --- */

/* Returns the mean of the last evaluations; with fewer than three, the first loss. */
static double run_evaluate(struct run *run)
{
    double mean = 0;
    run->result.loss = problem_loss(&run->problem);
    run->losses[run->evaluations++ % EVALUATIONS] = run->result.loss;
    if (run->evaluations < EVALUATIONS)
        return run->first_loss;
    for (int i = 0; i < EVALUATIONS; i++)
        mean += run->losses[i] / EVALUATIONS;
    return mean;
}

/* Returns whether the run ends after this round. The loss is evaluated after each fourth round,
 * from round 0 on. */
static bool run_is_over(struct run *run)
{
    const struct grid *grid = run->setting->grid;
    if ((run->result.rounds - 1) % EVALUATE_ROUNDS == 0) {
        double mean = run_evaluate(run);
        while (run->reached < GRID_TARGETS && mean <= run->setting->problem->targets[run->reached])
            run->result.reached[run->reached++] = run->now;
        if (run->reached == GRID_TARGETS || !(mean < DIVERGED * run->first_loss))
            return true;
    }
    return run->result.rounds >= grid->rounds_max || run->now >= grid->time_max;
}

static int run_create(struct run *run, const struct virtual_setting *s)
{
    const struct backup_options options = {.rule = s->rule->rule,
                                           .workers = s->grid->workers,
                                           .k = s->rule->k,
                                           .absence = s->absence,
                                           .gradients =
                                               s->rule->has_second ? VIRTUAL_SECOND_MOST : 1};
    run->setting = s;
    for (int i = 0; i < GRID_TARGETS; i++)
        run->result.reached[i] = -1;
    problem_init(&run->problem, s->problem, s->seed, s->digits);
    run->first_loss = problem_loss(&run->problem);
    durations_init(&run->durations, s->times, s->grid->workers, s->seed, s->jitter);
    return backup_create(&options, 0, &run->backup);
}

int virtual_run(const struct virtual_setting *setting, struct virtual_result *ret_result)
{
    struct run *run = calloc(1, sizeof *run);
    int error = run ? run_create(run, setting) : -ENOMEM;
    if (error == 0) {
        for (uint32_t rank = 0; rank < setting->grid->workers; rank++)
            run_begin(run, rank);
        do
            run_round(run);
        while (!run_is_over(run));
        double rounds = run->result.rounds;
        run->result.k_mean /= rounds;
        run->result.dropped /= rounds;
        run->result.decide_ns =
            run->decisions > 0 ? (double)run->decide_ns / (double)run->decisions : 0;
        *ret_result = run->result;
        backup_destroy(run->backup);
    }
    free(run);
    return error;
}
