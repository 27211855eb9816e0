/* The file with the sets of a job's rounds, as text:
 *
 *   gradpool sets 1, 4 ranks, static, k 3, least 2, ... #8d0f2a61
 *   round 1 all 0.000000 0-3 #51b2c9e0
 *   round 2 gain 0.020113 0-2 #0c1f77d4
 *   took 2 3 #c2d1a8b3
 *
 * "round": number, reason of the close, seconds since round 1, and the ranks of the set. "took":
 * number of a round and the rank outside its set that has begun its next gradient with the results
 * of the round. The number behind # is a checksum of the line and of all lines before it, so a
 * changed, missing or additional line is found. The functions read and write one line in memory. */
#ifndef GRADPOOL_CLIENT_LIB_SETS_SETS_FILE_H
#define GRADPOOL_CLIENT_LIB_SETS_SETS_FILE_H

#include "svc/wire/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SETS_LINE_BYTES 4096 /* longest line: every other rank of 768 */

enum sets_kind { SETS_HEAD, SETS_ROUND, SETS_TOOK };

struct sets_line {
    enum sets_kind kind;
    uint32_t workers; /* HEAD */
    char rule[160];   /* HEAD: text of backup_terms_write() without recording and replay */
    uint64_t round;   /* ROUND, TOOK */
    uint8_t reason;   /* ROUND: a value of enum record_reason */
    uint64_t ns;      /* ROUND: time since round 1 */
    uint64_t ranks[RANKS_WORDS]; /* ROUND: the set; TOOK: one rank */
};

/* Writes the line with its end. `*sum`: checksum of the lines before, which is continued. Returns
 * the number of bytes, less than SETS_LINE_BYTES. */
size_t sets_line_write(const struct sets_line *line, uint64_t *sum, char text[SETS_LINE_BYTES]);
/* Reads a line without its end; `text` is changed. Returns NULL, or a sentence about the fault. */
const char *sets_line_read(char *text, uint64_t *sum, struct sets_line *ret_line);

#endif
