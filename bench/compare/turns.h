/* Systems that run in turns on one service, and the figures of each turn. Used by one thread. */
#ifndef GRADPOOL_BENCH_TURNS_H
#define GRADPOOL_BENCH_TURNS_H

#include "bench/compare/crew.h"
#include "bench/savings/statistics.h"

#define TURNS_SYSTEMS_MAX 4
#define TURNS_ROUNDS_MAX 1000

/* Means over the rounds of a turn. `cpu_ms`: CPU time of the workers, and of the service if the
 * system uses it. */
struct turn_figures {
    double round_ms, cpu_ms;
};

struct turns {
    /* all systems; turns_ratio() divides by the figures of the first system */
    const struct system *systems;
    size_t systems_count;
    /* numbers of workers of each system, of turns, and of rounds in each turn */
    uint32_t workers, turns_count, rounds;
    struct crew crews[TURNS_SYSTEMS_MAX];
    struct turn_figures figures[TURNS_SYSTEMS_MAX][STATISTICS_TURNS_MAX];
    uint64_t wrong; /* number of wrong elements over all turns */
};

/* Starts the workers of every system. Returns a negative errno, with a text on standard error. The
 * caller calls turns_end() also after an error. */
int turns_start(struct turns *turns, const struct service *service);
/* Sets the tensors of a round of the system. `bytes`: sum over all `tensors`. */
int turns_resize(struct turns *turns, size_t system, uint64_t bytes, uint32_t tensors);
/* Runs `warm_rounds` rounds of each system, then all turns. */
int turns_run(struct turns *turns, uint32_t warm_rounds);
void turns_end(struct turns *turns);

struct turn_figures turns_median(const struct turns *turns, size_t system);
/* Returns the median over the turns of each ratio: a figure of this system in a turn, divided by
 * the figure of the first system in the same turn. */
struct turn_figures turns_ratio(const struct turns *turns, size_t system);

#endif
