/* The active job (active.h) has two workers and 4 KiB, because other connections slow down short
 * rounds most. Owns its crew. */
#include "bench/lib/active.h"
#include "bench/compare/systems.h"

#include <errno.h>
#include <stdlib.h>

#define WORKERS 2
#define TENSOR_BYTES 4096
#define WARM_ROUNDS 200
#define ROUNDS 3000

int active_start(struct active *a, const struct service *service)
{
    int r = crew_start(&a->crew, system_find("gradpool", a->transport), service, WORKERS);
    if (r == 0)
        r = crew_await(&a->crew);
    return r < 0 ? r : crew_resize(&a->crew, TENSOR_BYTES, 1);
}

static int compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

int active_measure(struct active *a, double *ret_p50_us)
{
    uint64_t *round_ns = calloc(WORKERS * ROUNDS, sizeof *round_ns);
    struct segment warm = {.rounds = WARM_ROUNDS, .round_ns = round_ns};
    struct segment measured = {.rounds = ROUNDS, .round_ns = round_ns};
    int r = round_ns ? crew_run(&a->crew, &warm) : -ENOMEM;
    if (r == 0)
        r = crew_run(&a->crew, &measured);
    if (r == 0) {
        qsort(round_ns, WORKERS * ROUNDS, sizeof *round_ns, compare_numbers);
        *ret_p50_us = (double)round_ns[WORKERS * ROUNDS / 2] / 1e3;
    }
    free(round_ns);
    return r;
}

void active_end(struct active *a)
{
    if (a->crew.system)
        crew_end(&a->crew);
}
