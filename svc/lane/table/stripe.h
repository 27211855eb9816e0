/* A stripe: the rows of a range of mixed keys that a lane applies at once, with the gradients of
 * all parts. A part is the share of one push in one shard: the keys of one rank, ascending.
 *
 * The lane's steps: add the parts, cut, read the gradients of all parts, open, apply each row,
 * advance the progress, pass. A rank that is lost before its gradients are read is dropped, and the
 * stripe is cut again; so a row has the sum with or without the rank (A83). Pure: keys are lent,
 * gradients are never touched. Thread: the lane's. */
#ifndef GRADPOOL_LANE_TABLE_STRIPE_H
#define GRADPOOL_LANE_TABLE_STRIPE_H

#include "svc/lane/table/shard.h"

/* Window of a part's keys that have not been applied yet. */
struct stripe_part {
    uint32_t rank;
    uint64_t sequence;    /* number of the push, by rank */
    const uint64_t *keys; /* mixed, ascending, no two the same; lent */
    size_t count;
    bool is_last; /* the part has no keys behind the window */
    /* Results: the first `taken` keys of the window belong to the cut stripe; the smallest key that
     * may follow the keys seen so far. */
    size_t taken;
    uint64_t next;
};

/* One gradient: position in the window of a part. */
struct stripe_source {
    uint32_t part, position;
};

/* Where the merge stands in a part. */
struct stripe_head {
    uint64_t key;
    uint32_t part, position;
};

/* After stripe_cut(): keys[0 .. keys_count), ascending, and of key i the sources starts[i] ..
 * starts[i + 1), in the order of (rank, sequence). After stripe_open(): rows[i], the row of key i.
 * Arrays belong to the stripe, and hold until the next call. */
struct stripe {
    struct allowance *allowance;
    uint32_t parts_max, sources_max;
    struct stripe_part *parts; /* in the order of (rank, sequence) */
    uint32_t parts_count, keys_count, sources_count;
    uint64_t *keys;
    uint32_t *rows, *starts;
    struct stripe_source *sources;
    struct stripe_head *heads;
    uint64_t last; /* largest key of the range, whether a part has it or not */
    bool is_end;   /* no part has keys behind the range */
};

/* Room for `parts_max` parts and `sources_max` gradients, at least one for each part: a key of all
 * parts must fit. One stripe serves all shards of a lane in turn. Errors of allowance_alloc();
 * nothing stays allocated. */
int stripe_init(struct stripe *stripe, struct allowance *allowance, uint32_t parts_max,
                uint32_t sources_max);
/* A zeroed stripe is fine. */
void stripe_fini(struct stripe *stripe);

/* Removes all parts. */
void stripe_clear(struct stripe *stripe);
/* Adds a part with its first window, of keys of `shard`, from a worker. `taken` and `next` are not
 * read. -EBADMSG: keys not ascending or not of the shard, `ret_position` (NULL is fine) is the
 * first wrong one; -EALREADY: the push has a part; -ENOSPC: parts_max. An error changes nothing. */
int stripe_add(struct stripe *stripe, const struct table_shard *shard,
               const struct stripe_part *part, size_t *ret_position);
/* Gives the next window to a part whose window is empty. -EBADMSG: as stripe_add(), and for a key
 * below a former one; the part keeps its empty window. */
int stripe_show(struct stripe *stripe, const struct table_shard *shard, uint32_t part,
                const uint64_t *keys, size_t count, bool is_last, size_t *ret_position);
/* Moves each window to its first key from `next` on: smaller keys have been applied before. */
void stripe_skip(struct stripe *stripe, uint64_t next);
/* Removes the parts of a lost rank. Returns their number; if not 0, the stripe is to be cut
 * again. */
uint32_t stripe_drop_rank(struct stripe *stripe, uint32_t rank);

/* Chooses the longest range of keys, from the first key of any part, whose gradients fit and whose
 * keys all windows show, and merges its keys. Cuts do not change the sums: all sources of a key are
 * in one stripe. -EAGAIN: the window of a part is empty and not the last, so that more keys have to
 * be read first (stripe_show()). Without any key the stripe is empty and `is_end`. */
int stripe_cut(struct stripe *stripe);
/* Finds the rows of a cut stripe, and adds the absent ones. Returns the number of births. Errors
 * of table_shard_add(), -EDQUOT first of all: the stripe has not begun, no row is changed or new,
 * and the call may be repeated. */
int64_t stripe_open(struct stripe *stripe, struct table_shard *shard);
/* Moves each window behind the keys of the applied stripe. Forgets `last` and `is_end`: the
 * progress advances before. */
void stripe_pass(struct stripe *stripe);

#endif
