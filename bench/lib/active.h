/* One active job: how long its rounds take alone, and among other, idle jobs. */
#ifndef GRADPOOL_BENCH_LIB_ACTIVE_H
#define GRADPOOL_BENCH_LIB_ACTIVE_H

#include "bench/compare/crew.h"

struct active {
    const char *transport;
    struct crew crew;
    /* p50 of a round; alone: the mean of the measurements before and after */
    double alone_us, among_us;
};

/* The job is zeroed but for `transport`. Returns once its workers have joined. */
int active_start(struct active *a, const struct service *service);
/* Returns the median over a few thousand rounds. */
int active_measure(struct active *a, double *ret_p50_us);
void active_end(struct active *a);

#endif
