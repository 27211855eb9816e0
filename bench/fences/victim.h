/* An ordinary job whose rounds are timed: one worker, 4 KiB, a short rest after each round. */
#ifndef GRADPOOL_BENCH_FENCES_VICTIM_H
#define GRADPOOL_BENCH_FENCES_VICTIM_H

#include "bench/compare/crew.h"

enum figure { FIGURE_P50, FIGURE_P99, FIGURE_P999, FIGURE_WORST, FIGURES };

struct victim {
    const char *transport;
    struct service through; /* the service, by the endpoint that tenants use */
    struct crew crew;
};

/* The victim is zeroed but for `transport`. `key`: file with the key of its tenant. Returns once
 * its worker has joined. */
int victim_start(struct victim *v, const struct service *service, const char *listen,
                 const char *key);
/* Measures microseconds of a round. Adds to `wrong` the number of wrong elements of the last
 * result. */
int victim_measure(struct victim *v, uint32_t rounds, double ret_us[FIGURES], uint64_t *wrong);
void victim_end(struct victim *v);

#endif
