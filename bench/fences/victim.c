/* The victim job (victim.h). Owns its crew. */
#include "bench/fences/victim.h"

#include "bench/compare/systems.h"
#include "bench/savings/statistics.h"

#include <errno.h>
#include <stdlib.h>

#define TENSOR_BYTES 4096
#define WARM_ROUNDS 50
#define REST_US 300

int victim_start(struct victim *v, const struct service *service, const char *listen,
                 const char *key)
{
    v->through = *service;
    snprintf(v->through.endpoint, sizeof v->through.endpoint, "%s", listen);
    setenv("GRADPOOL_KEY_FILE", key, 1);
    int r = crew_start(&v->crew, system_find("gradpool", v->transport), &v->through, 1);
    unsetenv("GRADPOOL_KEY_FILE");
    if (r == 0)
        r = crew_await(&v->crew);
    return r < 0 ? r : crew_resize(&v->crew, TENSOR_BYTES, 1);
}

static int run(struct victim *v, uint32_t rounds, uint64_t *round_ns, uint64_t *wrong)
{
    const uint32_t rest_us = REST_US;
    struct segment segment = {.rounds = rounds, .pause_us = &rest_us, .round_ns = round_ns};
    int r = crew_run(&v->crew, &segment);
    *wrong += segment.wrong;
    return r;
}

int victim_measure(struct victim *v, uint32_t rounds, double ret_us[FIGURES], uint64_t *wrong)
{
    static const double parts[FIGURES] = {0.5, 0.99, 0.999, 1};
    uint64_t *round_ns = calloc(rounds + WARM_ROUNDS, sizeof *round_ns);
    double *us = calloc(rounds, sizeof *us);
    int r = round_ns && us ? run(v, WARM_ROUNDS, round_ns, wrong) : -ENOMEM;
    if (r == 0)
        r = run(v, rounds, round_ns, wrong);
    for (uint32_t i = 0; r == 0 && i < rounds; i++)
        us[i] = (double)round_ns[i] / 1e3;
    for (int figure = 0; r == 0 && figure < FIGURES; figure++)
        ret_us[figure] = statistics_quantile(us, rounds, parts[figure]);
    free(round_ns);
    free(us);
    return r;
}

void victim_end(struct victim *v)
{
    if (v->crew.system)
        crew_end(&v->crew);
}
