/* Runs systems in turns. */
#include "bench/compare/turns.h"

#include "svc/base/clock.h"

#define FIGURES (sizeof(struct turn_figures) / sizeof(double))

int turns_start(struct turns *t, const struct service *service)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < t->systems_count; i++)
        r = crew_start(&t->crews[i], &t->systems[i], service, t->workers);
    for (size_t i = 0; r == 0 && i < t->systems_count; i++)
        r = crew_await(&t->crews[i]);
    return r;
}

int turns_resize(struct turns *t, size_t system, uint64_t bytes, uint32_t tensors)
{
    return crew_resize(&t->crews[system], bytes, tensors);
}

static int take_turn(struct turns *t, size_t system, uint32_t rounds, struct turn_figures *ret)
{
    static uint64_t round_ns[CREW_WORKERS_MAX * TURNS_ROUNDS_MAX];
    struct segment s = {.rounds = rounds, .round_ns = round_ns};
    int r = crew_run(&t->crews[system], &s);
    if (r < 0)
        return r;
    t->wrong += s.wrong;
    ret->round_ms = (double)s.elapsed_ns / NS_PER_MS / rounds;
    ret->cpu_ms = (double)(s.worker_cpu_ns + s.server_cpu_ns) / NS_PER_MS / rounds;
    return 0;
}

int turns_run(struct turns *t, uint32_t warm_rounds)
{
    struct turn_figures warm;
    int r = 0;
    for (size_t i = 0; r == 0 && i < t->systems_count; i++)
        r = take_turn(t, i, warm_rounds, &warm);
    for (uint32_t turn = 0; r == 0 && turn < t->turns_count; turn++)
        for (size_t i = 0; r == 0 && i < t->systems_count; i++)
            r = take_turn(t, i, t->rounds, &t->figures[i][turn]);
    return r;
}

void turns_end(struct turns *t)
{
    for (size_t i = 0; i < t->systems_count; i++)
        if (t->crews[i].system)
            crew_end(&t->crews[i]);
}

static double median_at(const struct turns *t, size_t system, size_t at)
{
    return statistics_turns_median(t->figures[system], FIGURES, t->turns_count, at);
}

static double ratio_at(const struct turns *t, size_t system, size_t at)
{
    return statistics_turns_ratio(t->figures[system], t->figures[0], FIGURES, t->turns_count, at);
}

struct turn_figures turns_median(const struct turns *t, size_t system)
{
    return (struct turn_figures){median_at(t, system, 0), median_at(t, system, 1)};
}

struct turn_figures turns_ratio(const struct turns *t, size_t system)
{
    return (struct turn_figures){ratio_at(t, system, 0), ratio_at(t, system, 1)};
}
