/* Draws stages among narrow jobs (jobs with few workers). */
#include "bench/explore/input/stages.h"

#include <stdlib.h>
#include <string.h>

#define STAGES_STEP_S 0.8   /* step time of one worker */
#define STAGES_LENGTH_S 120 /* length of a stage with all its workers */

struct trial_stream stages_stream(void)
{
    return (struct trial_stream){.name = "stage of 8",
                                 .arrivals = STREAM_POISSON,
                                 .load = 0.95,
                                 .burst = 4,
                                 .trials = 400,
                                 .slots = 32,
                                 .ask = 1,
                                 .workers_max = 2,
                                 .minutes = 10,
                                 .seeds = 5,
                                 .costs = {4.0, 0.3, 0.05, 30.0, 60.0}};
}

static struct trial stages_one(double submit_s)
{
    struct trial stage = {.submit_s = submit_s,
                          .split_s = STAGES_STEP_S,
                          .workers_min = STAGES_WORKERS,
                          .workers_max = STAGES_WORKERS,
                          .is_stage = true};
    for (size_t i = 0; i < TRIAL_RUNGS; i++)
        stage.rungs[i] = STAGES_LENGTH_S / (STAGES_STEP_S / STAGES_WORKERS);
    return stage;
}

static int stages_compare(const void *a, const void *b)
{
    const struct trial *x = a, *y = b;
    if (x->submit_s != y->submit_s)
        return x->submit_s > y->submit_s ? 1 : -1;
    return (int)x->is_stage - (int)y->is_stage;
}

struct trial *stages_draw(const struct trial_stream *stream, uint64_t seed, size_t *ret_count)
{
    size_t narrow = stream->trials, count = narrow + STAGES_COUNT;
    struct trial *drawn = trial_draw(stream, seed, NULL);
    struct trial *trials = drawn ? reallocarray(drawn, count, sizeof *trials) : NULL;
    if (!trials) {
        free(drawn);
        return NULL;
    }
    double span_s = trials[narrow - 1].submit_s;
    for (size_t i = 0; i < STAGES_COUNT; i++)
        trials[narrow + i] = stages_one(span_s * (double)(i + 1) / (STAGES_COUNT + 1));
    qsort(trials, count, sizeof *trials, stages_compare);
    *ret_count = count;
    return trials;
}
