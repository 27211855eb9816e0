/* A stripe is a range of mixed keys whose rows a lane updates together, with the gradients of all
 * parts. A part consists of the keys of one push of one rank in one shard, in ascending order.
 *
 * The lane adds the parts, cuts the stripe, reads the gradients of all parts, opens the stripe,
 * updates each row, advances the progress, and passes the stripe. If a rank is lost before its
 * gradients are read, its parts are dropped and the stripe is cut again. Each row therefore has the
 * sum either with or without that rank (A83). The caller owns the keys, and this file never reads a
 * gradient. All functions must run on the lane's thread. */
#ifndef GRADPOOL_LANE_TABLE_STRIPE_H
#define GRADPOOL_LANE_TABLE_STRIPE_H

#include "svc/lane/table/shard.h"

/* A part. Its window contains keys that are not applied yet. */
struct stripe_part {
    uint32_t rank;
    uint64_t sequence;    /* number of the push, counted for each rank */
    const uint64_t *keys; /* mixed keys, ascending, without duplicates; owned by the caller */
    size_t count;
    bool is_last; /* the part has no keys after the window */
    /* Results of the stripe. taken: number of keys at the start of the window that the cut stripe
     * contains. next: smallest key that may follow the window. */
    size_t taken;
    uint64_t next;
};

/* A gradient, by its position in the window of a part. */
struct stripe_source {
    uint32_t part, position;
};

/* Position of the merge in a part. */
struct stripe_head {
    uint64_t key;
    uint32_t part, position;
};

/* stripe_cut() sets keys[0 .. keys_count), ascending, and for key i the sources from starts[i] to
 * starts[i + 1] - 1, in the order of (rank, sequence). stripe_open() sets rows[i], the row of key
 * i. The stripe owns its arrays, which are valid until the next call. */
struct stripe {
    struct allowance *allowance;
    uint32_t parts_max, sources_max;
    struct stripe_part *parts; /* parts in the order of (rank, sequence) */
    uint32_t parts_count, keys_count, sources_count;
    uint64_t *keys;
    uint32_t *rows, *starts;
    struct stripe_source *sources;
    struct stripe_head *heads;
    uint64_t last; /* largest key of the range; no part needs to have this key */
    bool is_end;   /* no part has keys after the range */
};

/* Allocates room for `parts_max` parts and `sources_max` gradients. `sources_max` is at least
 * `parts_max`, so that a key that is in all parts fits. The shards of a lane use the same stripe
 * one after another. Returns 0 or an error of allowance_alloc(); nothing stays allocated then. */
int stripe_init(struct stripe *stripe, struct allowance *allowance, uint32_t parts_max,
                uint32_t sources_max);
/* Frees the arrays. A zeroed stripe is allowed. */
void stripe_fini(struct stripe *stripe);

void stripe_clear(struct stripe *stripe);
/* Adds a part with its first window of keys from a worker. `taken` and `next` of `part` are not
 * read. Returns 0. -EBADMSG: keys are not ascending or not of `shard`, and `ret_position` (may be
 * NULL) is the first such key. -EALREADY: the stripe has a part of this push. -ENOSPC: there are
 * parts_max parts. After an error nothing has changed. */
int stripe_add(struct stripe *stripe, const struct table_shard *shard,
               const struct stripe_part *part, size_t *ret_position);
/* Sets the next window of a part whose window is empty. -EBADMSG: as for stripe_add(), also if a
 * key is smaller than a key of an earlier window; the window then stays empty. */
int stripe_show(struct stripe *stripe, const struct table_shard *shard, uint32_t part,
                const uint64_t *keys, size_t count, bool is_last, size_t *ret_position);
/* Removes the keys below `next` from each window, because the shard has their updates already. */
void stripe_skip(struct stripe *stripe, uint64_t next);
/* Removes the parts of a lost rank. Returns their number; if it is not 0, the caller cuts the
 * stripe again. */
uint32_t stripe_drop_rank(struct stripe *stripe, uint32_t rank);

/* Chooses the longest range of keys that begins with the smallest key of all parts, whose gradients
 * fit, and for which every window is complete. Merges the keys of this range. All gradients of a
 * key are in one stripe, so the choice of ranges does not change a sum. -EAGAIN: the window of a
 * part is empty, and the part has more keys, so the caller has to add keys with stripe_show()
 * first. Without any key the stripe is empty, and `is_end` is true. */
int stripe_cut(struct stripe *stripe);
/* Finds the rows of a cut stripe, and adds the absent ones. Returns the number of added rows, or an
 * error of table_shard_add(), mostly -EDQUOT. After an error no row was added or changed, and the
 * call may be repeated. */
int64_t stripe_open(struct stripe *stripe, struct table_shard *shard);
/* Removes the keys of the applied stripe from each window. Resets `is_end`, so the caller advances
 * the progress before this call. */
void stripe_pass(struct stripe *stripe);

#endif
