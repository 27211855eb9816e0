/* Layout of a table's file: a header, then parts until the end. Private to table_file.c and
 * table_write.c. */
#ifndef GRADPOOL_STATE_TABLE_LAYOUT_H
#define GRADPOOL_STATE_TABLE_LAYOUT_H

#include "svc/state/state_sum.h"
#include "svc/wire/table/table_terms.h"

#define TABLE_MAGIC "GPTABLE" /* first bytes of the file, with the terminating zero */

struct table_header {
    char magic[8];
    uint32_t version;
    uint32_t dim, dtype, rule, initial;
    uint32_t reserved; /* must be 0 */
    double initial_value;
    uint64_t seed;
    uint64_t rows, steps, clock;
    uint64_t file_bytes;
    char name[TABLE_TERMS_NAME_BYTES_MAX + 1]; /* name of the table, followed by zeros */
    uint64_t header_sum;                       /* checksum of all previous fields */
};
_Static_assert(sizeof(struct table_header) == 344, "no holes");

/* Head of a part, followed by its rows. */
struct table_part {
    uint32_t rows;     /* number of rows, not 0 */
    uint32_t reserved; /* must be 0 */
    uint64_t first;    /* number of rows in all parts before this part */
    uint64_t sum;      /* checksum of the part, by table_part_sum() */
};
_Static_assert(sizeof(struct table_part) == 24, "no holes");

/* Returns the checksum of the fields before `sum` and of the rows. */
static inline uint64_t table_part_sum(const struct table_part *part, const void *rows, size_t bytes)
{
    const uint64_t words[] = {part->rows, part->reserved, part->first, state_sum(rows, bytes)};
    return state_sum(words, sizeof words);
}

#endif
