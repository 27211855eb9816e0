/* An ordinary job whose rounds are measured: one worker, 4 KiB, a short pause after each round. */
#ifndef GRADPOOL_BENCH_FENCES_VICTIM_H
#define GRADPOOL_BENCH_FENCES_VICTIM_H

#include "bench/compare/crew.h"

enum figure { FIGURE_P50, FIGURE_P99, FIGURE_P999, FIGURE_WORST, FIGURES };

struct victim {
    const char *transport;
    struct service through; /* the service, with the endpoint for tenants */
    struct crew crew;
};

/* Starts the victim job, and returns when its worker has joined. The caller sets `transport`; all
 * other fields are zero. `key`: file with the key of the victim's tenant. */
int victim_start(struct victim *v, const struct service *service, const char *listen,
                 const char *key);
/* Measures the microseconds of rounds. Adds the number of wrong elements in the last result to
 * `wrong`. */
int victim_measure(struct victim *v, uint32_t rounds, double ret_us[FIGURES], uint64_t *wrong);
void victim_end(struct victim *v);

#endif
