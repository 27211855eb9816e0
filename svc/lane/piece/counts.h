/* Counts over the rounds of a job with backup workers, on the lanes that have led its rounds. For
 * each rank, the lane counts the rounds with a gradient of the rank and the rounds whose gradient
 * was dropped. The counts belong to the job on the lane, so they remain when its ranks change.
 * RULES.md: A100. */
#ifndef GRADPOOL_LANE_PIECE_COUNTS_H
#define GRADPOOL_LANE_PIECE_COUNTS_H

#include "svc/lane/types.h"

struct counts;

/* Creates the counts of the job if this lane has none yet, and makes this piece the leading one.
 * Returns 0 or -ENOMEM. */
int counts_create(struct piece *p);
/* Called when the piece stops leading the rounds. The counts remain. */
void counts_forget_piece(const struct piece *p);
void counts_free(struct lane_job *job);
/* Counts a round of the leading piece. The round closes with the ranks that take part; `reason` is
 * a value of enum record_reason. A round that a former owner has closed is not counted again. */
void counts_closed(struct piece *p, uint8_t reason);

/* One row of counts_measure(). Each field has 64 bits, so that a row has no padding. */
struct counts_rank {
    /* numbers of rounds with a gradient of the rank, and of rounds without one */
    uint64_t counted, dropped;
    /* mean time of the rank's gradients; 0: no rule on this lane measures this time */
    uint64_t scale_ns;
};
struct counts_row {
    uint64_t job, ranks; /* `ranks`: number of entries in of[] */
    uint64_t rounds, gradients;
    uint64_t reasons[RECORD_REASONS]; /* number of rounds by enum record_reason */
    struct counts_rank of[];          /* one entry for each rank */
};

static inline size_t counts_row_bytes(uint64_t ranks)
{
    return sizeof(struct counts_row) + ranks * sizeof(struct counts_rank);
}
/* Writes the rows of all jobs with counts, in the order of lane_measure() and without gaps, as far
 * as they fit into `bytes`. Returns the bytes of all rows. */
size_t counts_measure(const struct lane *lane, void *ret_rows, size_t bytes);

#endif
