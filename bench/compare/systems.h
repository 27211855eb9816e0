/* The compared systems. */
#ifndef GRADPOOL_BENCH_SYSTEMS_H
#define GRADPOOL_BENCH_SYSTEMS_H

#include "bench/compare/crew.h"

#define SYSTEMS_MAX 16

/* The systems, in the order of runs and reports. The last entry has a NULL name. */
extern const struct system systems[];
/* Finds an entry, which must exist. */
const struct system *system_find(const char *name, const char *transport);

/* Ways in which a worker of gradpool pushes. */
struct gradpool_way {
    const char *transport;
    bool is_foreign;    /* gradients and results are in memory that gradpool did not allocate */
    bool is_one_by_one; /* one request for each tensor, instead of one request for all tensors */
    bool is_shuffled;   /* each worker pushes its tensors in a different order */
};

int gradpool_start(struct crew *crew, const struct gradpool_way *way);
int sockets_start(struct crew *crew);

#endif
