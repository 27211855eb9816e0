/* Draws trials and judges their reports. Every random number must come from the seed. */
#include "bench/explore/input/trial.h"
#include "bench/sim/chance.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL_KEEP 0.5 /* fraction of the trials that continue after a rung */
/* while a rung has fewer reports, every trial continues after this rung */
#define TRIAL_REPORTS_MIN 4
#define TRIAL_BURST_S 60 /* time in seconds within which all trials of a burst arrive */
#define TRIAL_STEPS_MIN 81

static double trial_uniform(uint64_t *state, double least, double most)
{
    return least + (most - least) * chance_unit(state);
}

static double trial_log_uniform(uint64_t *state, double least, double most)
{
    return least * pow(most / least, chance_unit(state));
}

double trial_speed(const struct trial *trial, uint32_t workers)
{
    if (workers == 0)
        return 0;
    return 1 / (trial->split_s / workers + trial->serial_s + trial->wide_s * workers);
}

double trial_steps(const struct trial *trial) { return trial->rungs[TRIAL_RUNGS - 1]; }

static void trial_draw_rungs(struct trial *trial, double whole, uint64_t *state)
{
    static const double deviations[TRIAL_RUNGS] = {0.15, 0.08, 0.04, 0};
    static const double parts[TRIAL_RUNGS] = {27, 9, 3, 1};
    for (size_t i = 0; i < TRIAL_RUNGS; i++) {
        trial->rungs[i] = fmax(floor(whole / parts[i]), (double)i + 1);
        trial->reports[i] = trial->quality + deviations[i] * chance_normal(state);
    }
}

static void trial_draw_one(const struct trial_stream *stream, struct trial *trial, uint64_t *state)
{
    double one_s = trial_log_uniform(state, 0.1, 1);
    double serial = trial_uniform(state, 0.03, 0.15);
    double whole_s = trial_log_uniform(state, stream->minutes * 60, stream->minutes * 360);
    trial->split_s = one_s * (1 - serial);
    trial->serial_s = one_s * serial * 0.9;
    trial->wide_s = one_s * serial * 0.1;
    double most = floor(sqrt(trial->split_s / trial->wide_s));
    trial->workers_min = 1;
    trial->workers_max = (uint32_t)fmax(1, fmin(stream->workers_max, most));
    trial->quality = chance_unit(state);
    trial_draw_rungs(trial, fmax(floor(whole_s / one_s), TRIAL_STEPS_MIN), state);
}

/* --- arrivals --- */

static double trial_expected_steps(const struct trial *trial)
{
    double expected = trial->rungs[0], part = 1;
    for (size_t i = 1; i < TRIAL_RUNGS; i++) {
        part *= TRIAL_KEEP;
        expected += part * (trial->rungs[i] - trial->rungs[i - 1]);
    }
    return expected;
}

/* Returns the mean time between two arrivals. With this time the trials have the load of the
 * stream. */
static double trial_gap_s(const struct trial_stream *stream, const struct trial *trials)
{
    double sum = 0;
    for (uint32_t i = 0; i < stream->trials; i++)
        sum +=
            trial_expected_steps(&trials[i]) / trial_speed(&trials[i], stream->ask) * stream->ask;
    return sum / stream->trials / (stream->load * stream->slots);
}

static void trial_arrive_in_bursts(const struct trial_stream *stream, struct trial *trials,
                                   uint64_t *state)
{
    double gap_s = trial_gap_s(stream, trials) * stream->burst, burst_s = 0;
    for (uint32_t i = 0; i < stream->trials; i++) {
        if (i % stream->burst == 0)
            burst_s += gap_s * chance_exponential(state);
        trials[i].submit_s = burst_s + trial_uniform(state, 0, fmin(TRIAL_BURST_S, gap_s));
    }
}

static void trial_arrive(const struct trial_stream *stream, struct trial *trials, uint64_t *state,
                         const struct stream_trace *trace)
{
    if (stream->arrivals == STREAM_POISSON)
        trial_arrive_in_bursts(stream, trials, state);
    for (uint32_t i = 0; i < stream->trials; i++) {
        if (stream->arrivals == STREAM_BATCH)
            trials[i].submit_s = trial_uniform(state, 0, TRIAL_BURST_S);
        if (stream->arrivals == STREAM_TRACE)
            trials[i].submit_s = trace->submit_s[i] * stream->scale;
    }
}

static int trial_compare(const void *a, const void *b)
{
    const struct trial *x = a, *y = b;
    if (x->submit_s != y->submit_s)
        return x->submit_s > y->submit_s ? 1 : -1;
    return (x->quality > y->quality) - (x->quality < y->quality);
}

struct trial *trial_draw(const struct trial_stream *stream, uint64_t seed,
                         const struct stream_trace *trace)
{
    uint64_t state = chance_hash(seed, stream->trials);
    if (stream->arrivals == STREAM_TRACE && (!trace || trace->count < stream->trials))
        return NULL;
    struct trial *trials = calloc(stream->trials, sizeof *trials);
    if (!trials)
        return NULL;
    for (uint32_t i = 0; i < stream->trials; i++)
        trial_draw_one(stream, &trials[i], &state);
    trial_arrive(stream, trials, &state, trace);
    qsort(trials, stream->trials, sizeof *trials, trial_compare);
    return trials;
}

/* --- search --- */

void trial_search_fini(struct trial_search *search)
{
    for (size_t i = 0; i < TRIAL_RUNGS; i++)
        free(search->reports[i]);
    memset(search, 0, sizeof *search);
}

int trial_search_init(struct trial_search *search, size_t trials)
{
    memset(search, 0, sizeof *search);
    for (size_t i = 0; i < TRIAL_RUNGS; i++) {
        search->reports[i] = calloc(trials ? trials : 1, sizeof *search->reports[i]);
        if (!search->reports[i]) {
            trial_search_fini(search);
            return -ENOMEM;
        }
    }
    return 0;
}

bool trial_search_keeps(struct trial_search *search, uint32_t rung, double value)
{
    double *sorted = search->reports[rung];
    size_t at = search->counts[rung]++;
    for (; at > 0 && sorted[at - 1] > value; at--)
        sorted[at] = sorted[at - 1];
    sorted[at] = value;
    size_t count = search->counts[rung];
    return count < TRIAL_REPORTS_MIN ||
           value <= sorted[(size_t)ceil((double)count * TRIAL_KEEP) - 1];
}
