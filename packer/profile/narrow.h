/* On how few lanes a job runs nearly as fast alone as on the most that it had. PURE: no clock; the
 * state is the caller's plain struct. README.md: R10. */
#ifndef GRADPOOL_PACKER_PROFILE_NARROW_H
#define GRADPOOL_PACKER_PROFILE_NARROW_H

#include <stdbool.h>
#include <stdint.h>

#define NARROW_PART_PPM 300000 /* of the loss limit: what fewer lanes may cost */

/* All zero: nothing is known, nothing is sought. */
struct narrow {
    uint32_t few;       /* lanes, too few; 0: none were */
    uint32_t enough;    /* the fewest that were not */
    uint32_t spent_ppm; /* what these cost it, of 10^6 */
};

/* It has run on so many, alone: whatever was known before is of another job. */
void narrow_begin(struct narrow *narrow, uint32_t lanes);
/* The lanes to try next, fewer than are enough; 0: the fewest are known. */
uint32_t narrow_next(const struct narrow *narrow);
/* How long a round takes on the lanes that were to be tried, against `alone_ns` on the most. Says
 * whether they are enough. `limit_ppm`: what the job may lose in all. */
bool narrow_take(struct narrow *narrow, uint64_t alone_ns, uint64_t now_ns, uint32_t limit_ppm);
/* Whether what the fewest cost is within its part of that limit. */
bool narrow_allows(const struct narrow *narrow, uint32_t limit_ppm);

#endif
