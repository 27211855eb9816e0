/* When the bursts of a job come on a lane, from when some of its rounds have begun there. PURE: no
 * clock; the state is the caller's plain struct, all zero to begin with. README.md: R6 to R8. */
#ifndef GRADPOOL_PACKER_PHASE_H
#define GRADPOOL_PACKER_PHASE_H

#include <stdint.h>

#define PHASE_LOOKS 8        /* in a row, and what they saw fits one period */
#define PHASE_GUARD_PARTS 20 /* a begin is off by a twentieth of the period at most */

/* What the last looks saw, oldest first. */
struct phase {
    uint32_t count;
    uint64_t begun_ns[PHASE_LOOKS]; /* when the newest round had begun */
    uint64_t span_ns[PHASE_LOOKS];  /* how long rounds then took, from first work to last */
};

/* Lane work comes for window_ns after begun_ns, and again each period_ns. */
struct phase_burst {
    uint64_t begun_ns, period_ns;
    uint64_t window_ns; /* 0: it is not known when */
};

/* Rounds have begun since the look before, the newest at begun_ns. Either is 0 when it is not
 * known: then what was seen before says nothing of what comes. */
void phase_take(struct phase *phase, uint64_t begun_ns, uint64_t span_ns);
/* `period_ns`: about how long a round takes; 0: not known. */
struct phase_burst phase_find(const struct phase *phase, uint64_t period_ns);
/* The burst in which those of two lanes of one job lie. */
struct phase_burst phase_join(const struct phase_burst *a, const struct phase_burst *b);
/* When the last burst before now_ns will have begun, or the newest that was seen. */
uint64_t phase_offset_ns(const struct phase_burst *burst, uint64_t now_ns);

#endif
