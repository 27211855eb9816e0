/* Rows of a table in bulk, for exports and imports. A held table applies no push, so all its rows
 * are of one clock until bulk_continue(). RULES.md: A104. Thread: the lane's. */
#ifndef GRADPOOL_LANE_ROWS_BULK_BULK_H
#define GRADPOOL_LANE_ROWS_BULK_BULK_H

#include "svc/lane/rows/types.h"

#define BULK_STEPS_MAX (UINT64_C(1) << 48)
#define BULK_ROWS_MAX 8192u /* maximum rows of one call, which then takes about as long as a turn */

struct bulk_standing {
    bool is_held; /* the hold has begun: no push is applied any more */
    bool is_bsp;  /* all lanes must hold the table at the same clock */
    /* BSP: all earlier clocks are applied; otherwise the smallest clock of the members */
    uint64_t clock;
    uint64_t steps;   /* number of updates of the table, for rules that count them */
    uint64_t rows;    /* number of rows on this lane */
    size_t row_bytes; /* bytes of a row in bulk_read() and bulk_write() */
};
/* Stops the updates of the table. With BSP, the lane still applies clocks before `clock`. The lane
 * also completes the clock or push that has begun, so the caller repeats the call until `is_held`
 * is true. `loads`: pulls wait, too, except pulls that have begun. -ENOENT: the lane has no such
 * table. */
int bulk_hold(struct lane *lane, uint32_t job, uint32_t table, uint64_t clock, bool loads,
              struct bulk_standing *ret_standing);

struct bulk_part {
    size_t bytes;
    uint64_t next; /* first mixed key of the next part */
    bool is_end;   /* the shard has no further rows */
};
/* Copies rows of a shard, in the order of mixed keys, from `from` on. The copy of a row consists of
 * the key, the values and the moments. `most` bytes have room for one row at least. -ENOENT: no
 * such table or shard; -EBUSY: the hold has not begun. */
int bulk_read(struct lane *lane, uint32_t job, uint32_t table, uint32_t shard, uint64_t from,
              char *ret_rows, size_t most, struct bulk_part *ret_part);
/* Stores rows, which replace those with the same key. All keys belong to shards of the lane. After
 * an error some rows may be stored. -ENOENT: the lane has no such table; -EBUSY: the hold has not
 * begun, or is not for an import. -EBADMSG: not whole rows, or more than BULK_ROWS_MAX; -ERANGE: a
 * key of another lane, or beyond the bound of the table; -EAGAIN: the allowance is used up, and a
 * request for more was made (room/room.h); -EDQUOT, -ENOSPC, -ENOMEM: as table_shard_add(). */
int bulk_write(struct lane *lane, uint32_t job, uint32_t table, const void *rows, size_t bytes);
/* Number of updates that the imported rows have had before clock `clock`. The caller passes the
 * same number and clock to all lanes, because without BSP each lane may have another clock. */
struct bulk_updates {
    uint64_t count; /* at most BULK_STEPS_MAX */
    uint64_t clock;
};
/* Ends the hold. `updates` NULL: the hold was for an export, or for an import that has ended early.
 * If the lane has stored rows of such an import, the job fails. -ENOENT: the lane has no such
 * table. -EBUSY: `updates` is not NULL, but the table has no hold for an import; the job fails. */
int bulk_continue(struct lane *lane, uint32_t job, uint32_t table,
                  const struct bulk_updates *updates);
/* Ends the holds of all tables, with NULL for `updates`. */
void bulk_continue_all(struct lane *lane);

/* Returns the number of updates before a clock of the lane. An import without BSP counts updates
 * from the largest clock of all lanes, so the number would be negative for a much smaller clock of
 * this lane; 0 is returned then. */
uint64_t bulk_updates_before(const struct lane_table *table, uint64_t clock);

/* Returns whether the former owner of a promoted table has applied a part of a push that its rank
 * has to repeat. Pushes of other ranks may arrive before the repeated push, so a hold does not stop
 * them. */
static inline bool bulk_awaits_push(const struct lane_table *table)
{
    return table->terms->consistency != TABLE_TERMS_BSP &&
           table->queues->logged.progress.sequence > 0;
}
/* Returns whether the hold prevents the lane from beginning the next clock or push of the table. No
 * clock or push is in progress. */
static inline bool bulk_stops(const struct lane_table *table)
{
    bool is_due =
        table->terms->consistency != TABLE_TERMS_BSP || table->clock >= table->hold->clock;
    return table->hold->is_on && table->shard == 0 && is_due && !bulk_awaits_push(table);
}
/* Returns whether a pull waits for the end of the hold. `has_begun`: rows were already read for the
 * pull, so the pull does not wait. */
static inline bool bulk_stops_pull(const struct lane_table *table, bool has_begun)
{
    return table->hold->is_on && table->hold->loads && !has_begun;
}

#endif
