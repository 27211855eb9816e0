/* Layout of a snapshot's file. Private to state_file.c and state_write.c. */
#ifndef GRADPOOL_STATE_STATE_LAYOUT_H
#define GRADPOOL_STATE_STATE_LAYOUT_H

#include <stdint.h>

#define STATE_MAGIC "GPSTATE" /* first bytes of the file, with the terminating zero */
#define STATE_ALIGN UINT64_C(64)

struct state_header {
    char magic[8];
    uint32_t version;
    uint32_t tensors;
    uint64_t file_bytes;
    uint64_t index_bytes; /* bytes of the index, which follows this header */
    uint64_t index_sum;
    uint64_t header_sum; /* checksum of all previous fields */
};
_Static_assert(sizeof(struct state_header) == 48, "no holes");

/* Entry of the index, followed by the name and zeros up to a multiple of 8. */
struct state_entry {
    uint64_t elements, steps, round, offset, sum;
    uint16_t name_bytes;
    uint8_t dtype, rule;
    uint32_t reserved; /* must be 0 */
};
_Static_assert(sizeof(struct state_entry) == 48, "no holes");

static inline uint64_t state_round_up(uint64_t bytes, uint64_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

/* Returns the bytes of an entry, including its name and a terminating zero, so that the name can be
 * used in place. */
static inline uint64_t state_entry_bytes(uint64_t name_bytes)
{
    return sizeof(struct state_entry) + state_round_up(name_bytes + 1, 8);
}

#endif
