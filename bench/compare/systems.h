/* The compared systems. */
#ifndef GRADPOOL_BENCH_SYSTEMS_H
#define GRADPOOL_BENCH_SYSTEMS_H

#include "bench/compare/crew.h"

#define SYSTEMS_MAX 16

/* In the order of runs and reports; the last has a NULL name. */
extern const struct system systems[];
/* Finds a row, which must exist. */
const struct system *system_find(const char *name, const char *transport);

/* How a worker of gradpool pushes. */
struct gradpool_way {
    const char *transport;
    bool is_foreign;    /* gradients and results lie in plain memory */
    bool is_one_by_one; /* a request for each tensor, not one for all */
    bool is_shuffled;   /* tensors in an order of each worker's own */
};

/* Starts workers that are processes of gradpool. */
int gradpool_start(struct crew *crew, const struct gradpool_way *way);
int sockets_start(struct crew *crew);

#endif
