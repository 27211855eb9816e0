/* Applies the pushes of a clock. Keys are copied from a worker's memory before they are checked and
 * merged, because the worker may change them; gradients are read in place. All sums of a batch are
 * computed, and all their bytes verified to come from workers, before the first row of the batch
 * changes (A83). RULES.md: A1, A7, A90, A91. */
#include "svc/lane/rows/apply/apply.h"

#include "svc/base/clock.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/rows/apply/ahead.h"
#include "svc/lane/rows/apply/parts.h"
#include "svc/lane/rows/apply/sums.h"
#include "svc/lane/rows/bulk/bulk.h"
#include "svc/lane/rows/counts/table_counts.h"
#include "svc/lane/rows/directory.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/room/room.h"
#include "svc/lane/rows/table.h"

#include <errno.h>
#include <inttypes.h>

#define ROWS_AHEAD 8 /* rows whose memory is prefetched */

/* ---- choice of the clock and the shard ---- */

/* Returns whether a pull of this or an earlier clock is open. Such a pull is answered first,
 * because a pull reads the rows before the pushes of its clock are applied. */
static bool has_earlier_pulls(const struct lane_table *table)
{
    list_for_each_entry (struct row_request, pull, &table->queues->pulls, link)
        if (pull->record->clock <= table->clock)
            return true;
    return false;
}

/* Returns whether the directory of a push that is due has not arrived yet. Without the directory
 * the lane does not know the shards of the push. */
static bool has_unchecked(const struct lane_table *table)
{
    if (table->job->tables->unchecked == 0)
        return false;
    list_for_each_entry (const struct row_request, push, &table->queues->pushes, link)
        if (!push->is_checked && push->record->clock <= table->clock)
            return true;
    return false;
}

/* Without BSP, a push waits only for the first settings. Another rank sends these settings before
 * the end of its first clock, so they may arrive later than the push. */
static bool may_apply_alone(const struct lane_table *table)
{
    const struct row_request *push = parts_first_push(table);
    return push && push->is_checked &&
           (table->changes->count > 0 ||
            table_clocks_have_ended(table->clocks, push->record->clock));
}

static bool may_apply(const struct lane_table *table)
{
    if (bulk_stops(table))
        return false;
    if (!table_is_bsp(table))
        return may_apply_alone(table);
    return table_clocks_have_ended(table->clocks, table->clock) && !has_earlier_pulls(table) &&
           !has_unchecked(table);
}

/* Ends a clock that is applied to all shards of this lane. Its pushes are answered. */
static void apply_end_clock(struct lane_table *table)
{
    ahead_end(table);
    list_for_each_safe_entry (struct row_request, push, &table->queues->pushes, link)
        if (push->record->clock <= table->clock)
            request_end(table, push);
    table->clock++;
    table->shard = 0;
}

/* Ends the oldest push, which is applied to all its shards on this lane. */
static void apply_end_push(struct lane_table *table)
{
    struct row_request *push = parts_first_push(table);
    ahead_end(table);
    table->queues->ranks[push->worker->number].applied = push->record->sequence;
    if (row_logged_is_of(&table->queues->logged, push))
        table->queues->logged.progress.sequence = 0;
    request_end(table, push);
    table->shard = 0;
    if (table->terms->consistency != TABLE_TERMS_ASP)
        return;
    table->job->tables->pushes++;
    table->job->tables->pushed_ns = clock_now_ns();
}

/* Returns whether the former owner has applied the oldest push to this shard (A131). */
static bool apply_was_applied(const struct lane_table *table)
{
    const struct row_progress *before = &table->queues->logged.progress;
    const struct row_request *push = parts_first_push(table);
    return !table_is_bsp(table) && row_logged_is_of(&table->queues->logged, push) &&
           table->shard < before->shard;
}

/* Returns whether the lane has to apply the clock or push to the shard: the shard is on this lane,
 * and, without BSP, in the directory of the oldest push. */
static bool apply_has_shard(const struct lane_table *table)
{
    struct row_span span;
    if (!table->shards[table->shard] || apply_was_applied(table))
        return false;
    return table_is_bsp(table) ||
           directory_find(table, parts_first_push(table), table->shard, &span) != -ENOENT;
}

/* Moves to the next shard of this lane. If none is left, the clock or the push ends, and the result
 * is false. */
static bool apply_find_shard(struct lane_table *table)
{
    while (table->shard < table->terms->shards && !apply_has_shard(table))
        table->shard++;
    if (table->shard < table->terms->shards)
        return true;
    if (table_is_bsp(table))
        apply_end_clock(table);
    else
        apply_end_push(table);
    return false;
}

static void apply_end_shard(struct row_apply *apply)
{
    shard_progress_finish(&apply_shard(apply)->progress);
    apply->table->shard++;
    apply->table = NULL;
    apply->is_cut = false;
}

/* ---- one stripe ---- */

/* Finds the rows of the stripe, and adds the absent rows. -EDQUOT: the allowance is used up, no row
 * was added, and the stripe begins when the allowance is raised. After another error the job has
 * failed. */
static int apply_open_rows(struct row_apply *apply)
{
    struct lane_table *table = apply->table;
    int64_t births = stripe_open(apply->stripe, apply_shard(apply)->store);
    if (births < 0 && room_lacks(table->job->tables, (int)births))
        return -EDQUOT;
    if (births < 0)
        job_fail(table->job, (int)births,
                 "table '%s' of job '%s': lane %u has no memory for new rows (%s); raise "
                 "--lane-memory-max, or use more lanes",
                 table->name, table->job->name, table->job->lane->options.id,
                 err_text((int)births));
    if (births < 0)
        return (int)births;
    table->counts->births += (uint64_t)births;
    room_check(table->job->tables);
    return 0;
}

static int apply_cut(struct row_apply *apply)
{
    int error = stripe_cut(apply->stripe);
    while (error == -EAGAIN) {
        error = parts_show(apply);
        if (error < 0)
            return error;
        error = stripe_cut(apply->stripe);
    }
    if (error == 0)
        error = apply_open_rows(apply);
    apply->is_cut = error == 0;
    apply->at = 0;
    return error;
}

static void apply_rows(struct row_apply *apply, uint32_t end)
{
    const struct lane_table *table = apply->table;
    const struct table_shard *store = apply_shard(apply)->store;
    const uint32_t *rows = apply->stripe->rows;
    const float *sum = apply->sums;
    for (uint32_t key = apply->at; key < end; key++, sum += table->terms->dim) {
        if (key + ROWS_AHEAD < end)
            __builtin_prefetch(rows_at(&store->rows, rows[key + ROWS_AHEAD]), 1);
        if (!table->update(&apply->step, sum, table->terms->dim, shard_values(store, rows[key]),
                           shard_moments(store, rows[key])))
            sums_count_skipped(apply, key);
    }
}

/* Applies the next rows of the cut stripe (a range of keys whose pushes are summed together), up to
 * ROW_SUMS_BYTES of sums. Returns false if gradients are still being read. If a worker's memory
 * cannot be read, no row changes, the worker's connection ends, and the result is false. */
static bool apply_batch(struct row_apply *apply)
{
    uint32_t dim = apply->table->terms->dim,
             most = ROW_SUMS_BYTES / (dim * (uint32_t)sizeof(float)),
             logged = log_rows_max(apply_shard(apply)->store->rows.row_bytes);
    most = most < logged ? most : logged;
    uint32_t left = apply->stripe->keys_count - apply->at;
    uint32_t end = apply->at + (left < most ? left : most);
    if (sums_make(apply, end) < 0)
        return false;
    const uint32_t *starts = apply->stripe->starts;
    apply->table->counts->pushed_keys += starts[end] - starts[apply->at];
    apply_rows(apply, end);
    sums_end(apply);
    apply->at = end;
    return true;
}

/* Stores the progress up to the last applied key. */
static void apply_advance(struct row_apply *apply)
{
    struct stripe *stripe = apply->stripe;
    struct shard_progress *progress = &apply_shard(apply)->progress;
    if (apply->at < stripe->keys_count) {
        if (apply->at > 0)
            shard_progress_advance(progress, stripe->keys[apply->at - 1]);
        return;
    }
    if (stripe->is_end || stripe->last == UINT64_MAX) /* nothing follows the largest key */
        return apply_end_shard(apply);
    shard_progress_advance(progress, stripe->last);
    stripe_pass(stripe);
    apply->is_cut = false;
}

/* ---- the job ---- */

/* Computes the coefficients of the clock, or of the clock of the push. -EINVAL: the clock has no
 * settings; the job has failed. */
static int apply_find_step(struct row_apply *apply)
{
    const struct lane_table *table = apply->table;
    uint64_t clock = table_is_bsp(table) ? table->clock : parts_first_push(table)->record->clock;
    const struct row_settings *settings = table_settings(table, clock);
    bool is_mean = table->terms->combine == TABLE_TERMS_MEAN;
    if (!settings) {
        job_fail(table->job, -EINVAL,
                 "table '%s' of job '%s' has no settings for clock %" PRIu64 "; call "
                 "gp_table_set() on rank 0 before its first gp_clock()",
                 table->name, table->job->name, clock);
        return -EINVAL;
    }
    uint32_t members = table->clocks->members ? table->clocks->members : 1;
    uint64_t step = bulk_updates_before(table, clock) + 1;
    apply->step = row_step(settings, step, is_mean ? members : 1,
                           table->terms->flags & TABLE_TERMS_ACCEPT_NONFINITE);
    return 0;
}

/* Begins the next shard of the table. Returns false if the clock must wait for ranks or pulls, or
 * if entries of a directory have not arrived yet. */
static bool apply_begin(struct row_apply *apply, struct lane_table *table)
{
    if (!may_apply(table))
        return false;
    if (!apply_find_shard(table))
        return true;
    int error = parts_collect(apply, table);
    if (error < 0)
        return error != -EAGAIN;
    apply->table = table;
    apply->is_open = apply->is_cut = false;
    stripe_clear(apply->stripe);
    if (apply->parts_count == 0)
        apply_end_shard(apply);
    else if (apply_find_step(apply) < 0)
        apply->table = NULL;
    return true;
}

static bool apply_begin_any(struct lane_tables *tables)
{
    if (network_reads_windows(tables))
        return false;
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        if (apply_begin(tables->apply, table))
            return true;
    return false;
}

bool apply_work(struct lane_tables *tables)
{
    struct row_apply *apply = tables->apply;
    if (!row_log_may_update(tables))
        return false;
    if (!apply->table)
        return apply_begin_any(tables);
    if (!apply->is_open && parts_open(apply) < 0)
        return false;
    if (!apply->is_cut && (room_is_short(tables) || apply_cut(apply) < 0))
        return false;
    const struct lane_table *table = apply->table;
    uint32_t first = apply->at, shard = table->shard;
    if (!apply_batch(apply))
        return false;
    row_log_rows(apply, first);
    apply_advance(apply);
    row_log_close(table, shard);
    return true;
}

void apply_forget(struct lane_tables *tables, uint32_t rank)
{
    struct row_apply *apply = tables->apply;
    ahead_forget(tables, rank);
    if (!apply->table || parts_drop_rank(apply, rank) == 0)
        return;
    sums_abort(apply);
    room_forget(tables);
    if (apply->parts_count == 0 && !table_is_bsp(apply->table)) {
        apply->table = NULL; /* the only push is dropped; the next one begins at its first shard */
        return;
    }
    if (apply->is_cut)
        stripe_skip(apply->stripe, apply_shard(apply)->progress.next);
    apply->is_cut = false;
}
