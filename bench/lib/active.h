/* One job that is active: how long its rounds take alone, and among others that are idle. */
#ifndef GRADPOOL_BENCH_LIB_ACTIVE_H
#define GRADPOOL_BENCH_LIB_ACTIVE_H

#include "bench/compare/crew.h"

struct active {
    const char *transport;
    struct crew crew;
    double alone_us, among_us; /* p50 of a round; alone: the mean of before and after */
};

/* The job is zeroed but for `transport`. Returns once its workers have joined. */
int active_start(struct active *a, const struct service *service);
/* The median over a few thousand rounds. */
int active_measure(struct active *a, double *ret_p50_us);
void active_end(struct active *a);

#endif
