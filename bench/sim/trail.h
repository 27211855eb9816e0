/* A simulated run for whom its sums are not enough: cores part by part, and what each job lost.
 * PURE. */
#ifndef GRADPOOL_BENCH_SIM_TRAIL_H
#define GRADPOOL_BENCH_SIM_TRAIL_H

#include <stddef.h>
#include <stdint.h>

#define TRAIL_PARTS 360 /* of equal length, from the begin to the end of the clock */

/* As the fields of struct simulated; cores, mean over the part. */
struct trail_part {
    double allocated, fluid, dedicated;
};

struct trail_job {
    size_t job; /* position in the workload */
    double loss, predicted;
    double alone_ns; /* a round, on as many lanes as workers with nobody else */
};

#define TRAIL_SPANS 24 /* likewise; what changes is too much to be told one by one */

struct trail_span {
    uint64_t opened, closed; /* shared lanes */
    uint64_t moves;          /* as struct simulated has them */
};

struct trail {
    struct trail_part parts[TRAIL_PARTS];
    struct trail_span spans[TRAIL_SPANS];
    struct trail_job *jobs; /* those that a window saw */
    size_t jobs_count;
};

/* So many cores from one moment to another, of a run that ends at `end_ns`. */
void trail_add(struct trail *trail, uint64_t end_ns, uint64_t from_ns, uint64_t to_ns,
               const struct trail_part *cores);
/* What changed at one moment. */
void trail_count(struct trail *trail, uint64_t end_ns, uint64_t at_ns,
                 const struct trail_span *change);
void trail_fini(struct trail *trail);

#endif
