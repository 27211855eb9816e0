/* What is known of a time from samples of it: a median of the last ones, smoothed. PURE: the state
 * is the caller's plain struct, all zero to begin with. README.md: R2. */
#ifndef GRADPOOL_PACKER_PROFILE_ESTIMATE_H
#define GRADPOOL_PACKER_PROFILE_ESTIMATE_H

#include <stdint.h>

#define ESTIMATE_RECENT 9

struct estimate {
    uint32_t samples; /* at most twice ESTIMATE_RECENT, which says "many" */
    uint32_t next;
    uint64_t recent[ESTIMATE_RECENT];
    uint64_t value; /* with a sample at least */
};

void estimate_take(struct estimate *estimate, uint64_t sample);
/* The samples are of another setting than those that come; the value stays until then. */
void estimate_restart(struct estimate *estimate);

#endif
