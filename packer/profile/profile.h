/* How a job runs, from samples of it: how long a round takes, how much lane time. PURE: no clock;
 * the state is the caller's plain struct, all zero to begin with. README.md: R1 to R5. */
#ifndef GRADPOOL_PACKER_PROFILE_PROFILE_H
#define GRADPOOL_PACKER_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "packer/profile/estimate.h"
#include "packer/profile/narrow.h"

#define PROFILE_WARM_ROUNDS 5
#define PROFILE_LEAST_ROUNDS 20
#define PROFILE_LEAST_SAMPLES 3
#define PROFILE_TRIED_ROUNDS 50    /* on fewer lanes, before these are judged (R10) */
#define PROFILE_STRANGE_SAMPLES 10 /* in a row, before it is another job (R9) */
#define PROFILE_TIMES 6            /* in struct profile_times */

/* Of the rounds that have begun since the sample before, at least one. */
struct profile_sample {
    uint64_t rounds;
    uint64_t elapsed_ns; /* from the begin of the last round before to that of the last of these */
    uint64_t busiest_ns; /* lane time a round, on the job's busiest lane */
    uint64_t lanes_ns;   /* lane time a round, on all its lanes */
    uint64_t span_ns;    /* how rounds end on the busiest lane (L8); 0: not known */
    uint64_t burst_ns, slack_ns;
    uint32_t lanes;          /* that it is on */
    bool is_alone;           /* no other job had pieces on its lanes meanwhile */
    uint32_t loss_limit_ppm; /* of the job; 0: fewer lanes are not judged (R10) */
};

struct profile_times {
    uint64_t period_ns; /* 0: not known */
    uint64_t busiest_ns, lanes_ns;
    uint64_t span_ns; /* 0: not known, nor are the next two */
    uint64_t burst_ns, slack_ns;
};

struct profile {
    uint64_t rounds;                     /* of all samples */
    bool is_alone;                       /* in the samples that the estimates are of, ... */
    uint32_t lanes;                      /* ... and on how many lanes */
    uint64_t setting_rounds, setting_ns; /* of these samples */
    struct estimate estimates[PROFILE_TIMES];
    struct profile_times now;    /* as it runs */
    struct profile_times alone;  /* as it ran without others, now or before, ... */
    uint32_t alone_lanes;        /* ... on so many lanes */
    struct narrow narrow;        /* how many of them it needs (R10), ... */
    struct profile_times fewest; /* ... as it ran alone on these; period_ns 0: all of them */
    uint32_t strange;            /* samples in a row that are longer than that explains */
    struct profile_times before; /* as it ran beside others, before */
    struct profile_times used;   /* what the caller has last made use of */
};

enum profile_news {
    PROFILE_NOTHING,
    PROFILE_MEASURED, /* for the first time, or alone for the first time, and that was not known */
    PROFILE_DRIFTED,  /* it is no longer what the caller has made use of */
    PROFILE_NARROWED, /* fewer lanes are enough, or turned out to be too few */
};

/* The caller makes use of what is news, and says so with profile_use(). */
enum profile_news profile_take(struct profile *profile, const struct profile_sample *sample);
void profile_use(struct profile *profile);
/* It has run before, so, on `lanes` lanes, of which it needs `narrow`; beside others that is a hint
 * for placing and nothing else (R5). */
void profile_recall(struct profile *profile, const struct profile_times *before, bool is_alone,
                    uint32_t lanes, const struct narrow *narrow);
/* Whether it was ever measured without others: else nobody can say what it loses. */
bool profile_knows_alone(const struct profile *profile);
/* What to place it with; period_ns 0: it is not measured. */
struct profile_times profile_known(const struct profile *profile);
/* What it loses now against running alone; 0 when either is not known. */
uint32_t profile_loss_ppm(const struct profile *profile);

#endif
