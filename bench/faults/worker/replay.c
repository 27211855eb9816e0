/* Owns parameters and moments computed without the service. Must never copy a result of the
 * service: a wrong result would become the next reference. */
#include "bench/faults/worker/replay.h"

#include "bench/lib/gradient.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARRAYS (1 + UPDATE_MOMENTS_MAX)
#define SETTINGS 8 /* number of different settings; rounds use them cyclically */

static struct gradient drawn(const struct replay *r, uint64_t round)
{
    return (struct gradient){r->seed, r->tensor, round};
}

int replay_init(struct replay *r)
{
    float *next = calloc((ARRAYS + r->workers) * r->elements, sizeof *next);
    if (!next)
        return -ENOMEM;
    r->parameters = next;
    for (size_t i = 0; i < UPDATE_MOMENTS_MAX; i++)
        r->moments[i] = next += r->elements;
    for (size_t i = 0; i < r->workers; i++)
        r->gradients[i] = next += r->elements;
    return 0;
}

void replay_fini(struct replay *r) { free(r->parameters); }

void replay_set(struct replay *r, uint64_t round, float *values)
{
    const struct gradient g = drawn(r, round);
    gradient_fill(&g, 0, r->parameters, r->elements);
    memcpy(values, r->parameters, r->elements * sizeof *values);
    r->step = 0;
}

struct update_settings replay_settings(uint64_t round)
{
    double times = 1 + (double)(round % SETTINGS) / SETTINGS;
    return (struct update_settings){.rate = 1e-2 * times,
                                    .weight_decay = 1e-3,
                                    .momentum = 0.9,
                                    .dampening = 0.125,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8};
}

/* Updates the arrays in place, because no round is repeated. */
void replay_step(struct replay *r, uint64_t round)
{
    const struct gradient g = drawn(r, round);
    const struct update_settings settings = replay_settings(round);
    const void *sources[REPLAY_WORKERS_MAX];
    void *target = r->parameters;
    for (uint32_t rank = 0; rank < r->workers; rank++) {
        gradient_fill(&g, rank, r->gradients[rank], r->elements);
        sources[rank] = r->gradients[rank];
    }
    const struct reduce_pass sums = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = sources,
                                     .sources_count = (int)r->workers,
                                     .elements = r->elements,
                                     .divisor = r->workers};
    const struct update_state state = {.parameters = r->parameters,
                                       .moments = {r->moments[0], r->moments[1]},
                                       .ret_parameters = r->parameters,
                                       .ret_moments = {r->moments[0], r->moments[1]}};
    update_pick(REDUCE_C, r->rule, REDUCE_F32, REDUCE_F32)(&sums, &settings, ++r->step, &state);
}

uint64_t replay_count_wrong(const struct replay *r, const float *values)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < r->elements; i++)
        wrong += memcmp(&values[i], &r->parameters[i], sizeof *values) != 0;
    return wrong;
}
