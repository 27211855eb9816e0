/* The measurements of a job before its placement: period, lane time, spread. */
#ifndef GRADPOOL_BENCH_SIM_LANES_JOB_PROFILE_H
#define GRADPOOL_BENCH_SIM_LANES_JOB_PROFILE_H

#include "bench/sim/input/models.h"
#include "bench/sim/lanes/queue.h"
#include "bench/sim/setting.h"
#include "packer/packer.h"

struct job_profile {
    const struct model *model;
    uint32_t workers;
    const struct setting *setting;
    struct packer_tensor *tensors; /* tensors of the request to the packer */
    size_t tensors_count;
    struct packer_timing timing;
    uint64_t lane_ns;      /* lane time of a round of all tensors */
    uint64_t piece_bytes;  /* largest piece */
    double deviation_ns;   /* standard deviation of the round time */
    uint64_t measuring_ns; /* time for which the measurement used as many lanes as workers */
    struct queue_piece *dedicated; /* pieces on as many lanes as workers */
    size_t dedicated_count;
};

/* Measures a job of this model with this number of workers. Returns 0, -ENOMEM, or the packer's
 * error with its reason in `error` (TABLE_ERROR_BYTES). */
int job_profile_make(struct job_profile *profile, const struct model *model, uint32_t workers,
                     const struct setting *setting, char *error);
void job_profile_fini(struct job_profile *profile);

/* Returns the lane time of a round of a piece; at least 1. */
uint64_t job_profile_piece_ns(const struct job_profile *profile, const struct packer_piece *piece);
/* Converts pieces for the event simulation. The slower of core and network limits a lane. */
void job_profile_to_queue(const struct job_profile *profile, const struct packer_piece *pieces,
                          size_t count, struct queue_piece *ret_pieces);
/* Returns the job for the simulation, except pieces, seed and start. */
struct queue_job job_profile_queue_job(const struct job_profile *profile);
/* Returns the lane time of one chunk. */
double job_profile_chunk_ns(const struct setting *setting);

#endif
