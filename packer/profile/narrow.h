/* narrow: searches for the smallest number of lanes on which a job without other jobs is nearly as
 * fast as on its former lanes. Pure: no clock; the caller owns the state. RULES.md: R10. */
#ifndef GRADPOOL_PACKER_PROFILE_NARROW_H
#define GRADPOOL_PACKER_PROFILE_NARROW_H

#include <stdbool.h>
#include <stdint.h>

/* largest part of a job's loss limit that running on fewer lanes may cost, in millionths */
#define NARROW_PART_PPM 300000

/* State of the search; all zeros: the search has not begun. */
struct narrow {
    uint32_t few;       /* largest number of lanes known to be too small; 0: none */
    uint32_t enough;    /* smallest number of lanes that was enough so far */
    uint32_t spent_ppm; /* loss of the job on `enough` lanes, in millionths */
};

/* Begins a new search for a job that ran alone on `lanes` lanes. */
void narrow_begin(struct narrow *narrow, uint32_t lanes);
/* Returns the number of lanes for the next trial, less than `enough`; 0: the search has ended. */
uint32_t narrow_next(const struct narrow *narrow);
/* Records the trial on narrow_next() lanes. `now_ns`: round time of the trial; `alone_ns`: round
 * time on all lanes; `limit_ppm`: the job's whole loss limit. Returns whether the number of lanes
 * is enough. */
bool narrow_add(struct narrow *narrow, uint64_t alone_ns, uint64_t now_ns, uint32_t limit_ppm);
/* Returns whether spent_ppm is within the part of `limit_ppm` that fewer lanes may cost. */
bool narrow_allows(const struct narrow *narrow, uint32_t limit_ppm);

#endif
