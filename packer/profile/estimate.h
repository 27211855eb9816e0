/* estimate: a time, estimated as the smoothed median of its last samples. Pure: the caller owns the
 * state, which is all zeros at first. RULES.md: R2. */
#ifndef GRADPOOL_PACKER_PROFILE_ESTIMATE_H
#define GRADPOOL_PACKER_PROFILE_ESTIMATE_H

#include <stdint.h>

#define ESTIMATE_RECENT 9

struct estimate {
    uint32_t samples; /* number of samples so far, up to 2 x ESTIMATE_RECENT */
    uint32_t next;    /* position of the next sample in `recent` */
    uint64_t recent[ESTIMATE_RECENT];
    uint64_t value; /* smoothed median; valid with at least one sample */
};

void estimate_add(struct estimate *estimate, uint64_t sample);
/* Deletes the samples, for example because the number of lanes has changed. `value` stays until the
 * next sample. */
void estimate_restart(struct estimate *estimate);

#endif
