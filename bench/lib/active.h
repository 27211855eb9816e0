/* One active job: round times without other jobs, and among idle jobs. */
#ifndef GRADPOOL_BENCH_LIB_ACTIVE_H
#define GRADPOOL_BENCH_LIB_ACTIVE_H

#include "bench/compare/crew.h"

struct active {
    const char *transport;
    struct crew crew;
    /* median round times without and among idle jobs; `alone_us` is the mean of two measurements:
     * before the idle jobs start, and after their end */
    double alone_us, among_us;
};

/* Starts the active job, and returns when its workers have joined. The caller sets `transport`; all
 * other fields are zero. */
int active_start(struct active *a, const struct service *service);
/* Measures the median over a few thousand rounds. */
int active_measure(struct active *a, double *ret_p50_us);
void active_end(struct active *a);

#endif
