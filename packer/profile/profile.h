/* profile: estimates the period and the lane time of a job from samples, alone and beside other
 * jobs. Pure: no clock; the caller owns the state, which is all zeros at first. RULES.md: R1 to
 * R10. */
#ifndef GRADPOOL_PACKER_PROFILE_PROFILE_H
#define GRADPOOL_PACKER_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "packer/profile/estimate.h"
#include "packer/profile/narrow.h"

#define PROFILE_WARM_ROUNDS 5
#define PROFILE_LEAST_ROUNDS 20
#define PROFILE_LEAST_SAMPLES 3
/* number of rounds on fewer lanes before a trial has a result (R10) */
#define PROFILE_TRIED_ROUNDS 50
/* After this number of consecutive samples with a period that `alone` does not explain, the job is
 * assumed to have changed (R9). */
#define PROFILE_UNEXPLAINED_SAMPLES 10
#define PROFILE_TIMES 6 /* number of fields of struct profile_times */

/* One sample covers the rounds that began since the previous sample, at least one round. */
struct profile_sample {
    uint64_t rounds;
    /* time from the start of the previous sample's last round to the start of this sample's last
     * round */
    uint64_t elapsed_ns;
    uint64_t busiest_ns; /* lane time of a round on the job's busiest lane */
    uint64_t lanes_ns;   /* lane time of a round on all lanes of the job */
    uint64_t span_ns;    /* as in struct packer_timing (L8); 0: not known */
    uint64_t burst_ns;   /* as in struct packer_timing; valid with span_ns */
    uint64_t slack_ns;   /* as in struct packer_timing; valid with span_ns */
    uint32_t lanes;      /* number of lanes of the job */
    bool is_alone;       /* whether no other job had pieces on the job's lanes during the sample */
    /* the job's loss limit, in millionths; 0: a trial of fewer lanes gets no result (R10) */
    uint32_t loss_limit_ppm;
};

struct profile_times {
    uint64_t period_ns; /* time from round to round; 0: unknown */
    uint64_t busiest_ns, lanes_ns;
    /* as in struct packer_timing; 0: span_ns, burst_ns and slack_ns are unknown */
    uint64_t span_ns;
    uint64_t burst_ns, slack_ns;
};

struct profile {
    uint64_t rounds; /* number of rounds in all samples */
    /* Conditions of the present samples: whether the job is alone on its lanes, and the number of
     * its lanes. */
    bool is_alone;
    uint32_t lanes;
    /* number of rounds and total time of the samples under these conditions */
    uint64_t setting_rounds, setting_ns;
    struct estimate estimates[PROFILE_TIMES];
    struct profile_times now; /* times under the present conditions */
    /* newest times without other jobs on the largest number of lanes; period_ns 0: none */
    struct profile_times alone;
    uint32_t alone_lanes;        /* number of lanes of `alone` */
    struct narrow narrow;        /* search for the fewest lanes of the job (R10) */
    struct profile_times fewest; /* times alone on narrow.enough lanes; period_ns 0: use `alone` */
    /* number of consecutive samples with a period that `alone` does not explain */
    uint32_t unexplained;
    struct profile_times before; /* times of an earlier run of the job, on lanes with other jobs */
    struct profile_times used;   /* times at the last profile_use() */
};

enum profile_news {
    PROFILE_NOTHING,
    /* the job was measured for the first time, or for the first time without other jobs */
    PROFILE_MEASURED,
    PROFILE_DRIFTED,  /* the times differ from those of the last profile_use() */
    PROFILE_NARROWED, /* a trial with fewer lanes has a result */
};

/* Adds a sample. After any result but PROFILE_NOTHING the caller reads profile_known() and calls
 * profile_use(). */
enum profile_news profile_add(struct profile *profile, const struct profile_sample *sample);
void profile_use(struct profile *profile);
/* Sets the times of an earlier run of the job on `lanes` lanes, and the state of its search for
 * fewer lanes. Times beside other jobs are only a hint for placement (R5). */
void profile_recall(struct profile *profile, const struct profile_times *before, bool is_alone,
                    uint32_t lanes, const struct narrow *narrow);
/* Returns whether the job was measured without other jobs. If not, its loss is unknown. */
bool profile_knows_alone(const struct profile *profile);
/* Returns the times for placement; period_ns 0: the job is not measured. */
struct profile_times profile_known(const struct profile *profile);
/* Returns the present loss in millionths, compared with the period alone; 0 if either period is
 * unknown. */
uint32_t profile_loss_ppm(const struct profile *profile);

#endif
