/* Details of a simulated run beyond its sums: cores in each part of the run, and the loss of each
 * job. PURE. */
#ifndef GRADPOOL_BENCH_SIM_TRAIL_H
#define GRADPOOL_BENCH_SIM_TRAIL_H

#include <stddef.h>
#include <stdint.h>

/* number of parts of equal length, from the start to the end of the clock */
#define TRAIL_PARTS 360

/* Cores as in struct simulated; means over the part. */
struct trail_part {
    double allocated, fluid, dedicated;
};

struct trail_job {
    size_t job; /* position of the job in the workload */
    double loss, predicted;
    double alone_ns; /* round time on as many lanes as workers without other jobs */
};

/* number of parts of equal length for the events, which are too many to list */
#define TRAIL_SPANS 24

struct trail_span {
    uint64_t opened, closed; /* numbers of shared lanes that opened and closed */
    uint64_t moves;          /* number of moves, as in struct simulated */
};

struct trail {
    struct trail_part parts[TRAIL_PARTS];
    struct trail_span spans[TRAIL_SPANS];
    struct trail_job *jobs; /* jobs with a window */
    size_t jobs_count;
};

/* Adds the cores that were used between two times, in a run that ends at `end_ns`. */
void trail_add(struct trail *trail, uint64_t end_ns, uint64_t from_ns, uint64_t to_ns,
               const struct trail_part *cores);
/* Counts lanes that opened or closed, and moves, at one time. */
void trail_count(struct trail *trail, uint64_t end_ns, uint64_t at_ns,
                 const struct trail_span *change);
void trail_fini(struct trail *trail);

#endif
