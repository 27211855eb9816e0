/* What a simulation assumes. */
#ifndef GRADPOOL_BENCH_SIM_SETTING_H
#define GRADPOOL_BENCH_SIM_SETTING_H

#include <stdbool.h>
#include <stdint.h>

/* 25 Gbit/s to a worker, 100 to a lane. */
#define SETTING_LANE_LINES 4

struct setting {
    const char *policy;
    double x_gib_per_s;     /* of pushed gradients that a core sums and hands out */
    double line_gbit_per_s; /* of each worker, each way; a lane has SETTING_LANE_LINES times that */
    double jitter;          /* of a worker's step time: standard deviation by mean */
    uint32_t element_bytes; /* on the wire: 4 or 2 */
    uint32_t loss_limit_ppm;  /* of every job */
    uint64_t piece_bytes_max; /* as `serve --piece-max`; 0: the packer's */
    uint32_t lanes;           /* to share, all there are; 0: as many as are needed */
    uint32_t windows;         /* looked at chunk by chunk */
    double window_s;
    bool moves;    /* tasks move so that lanes get empty */
    bool is_known; /* jobs were measured before, and are placed when they come */
    bool overlaps; /* pieces go out during the backward pass, not all at its end */
    uint64_t seed;
};

#endif
