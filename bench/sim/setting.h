/* Assumptions of a simulation. */
#ifndef GRADPOOL_BENCH_SIM_SETTING_H
#define GRADPOOL_BENCH_SIM_SETTING_H

#include <stdbool.h>
#include <stdint.h>

/* Bandwidth of a lane divided by the bandwidth of a worker: 100 and 25 Gbit/s. */
#define SETTING_LANE_LINES 4

struct setting {
    const char *policy;
    double x_gib_per_s; /* GiB of pushed gradients that a core sums and returns in a second */
    /* Network of each worker, in each direction; a lane has SETTING_LANE_LINES times as much. */
    double line_gbit_per_s;
    double jitter;          /* jitter of a worker's step time: standard deviation divided by mean */
    uint32_t element_bytes; /* bytes of an element on the wire: 4 or 2 */
    uint32_t loss_limit_ppm; /* loss limit of every job */
    /* maximum size of a piece, as `serve --piece-max`; 0: the packer's default */
    uint64_t piece_bytes_max;
    uint32_t lanes;   /* number of shared lanes; 0: as many as needed */
    uint32_t windows; /* number of windows that are simulated chunk by chunk */
    double window_s;
    bool moves; /* whether tasks move to empty lanes */
    /* whether the service knows all jobs from earlier starts, and places them without a
     * measurement */
    bool is_known;
    /* whether pieces are sent during the backward pass; otherwise all pieces are sent at the end of
     * the pass */
    bool overlaps;
    uint64_t seed;
};

#endif
