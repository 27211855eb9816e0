/* Applies the pushes of a clock. Keys are copied from a worker's memory before they are checked and
 * merged, because the worker may change them; gradients are read in place. All sums of a batch are
 * computed, and all their bytes verified to come from workers, before the first row of the batch
 * changes (A83). RULES.md: A1, A7, A90, A91. */
#include "svc/lane/rows/apply.h"

#include "svc/base/clock.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/table.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ROWS_AHEAD 8 /* rows whose memory is prefetched */

static struct lane_shard *apply_shard(const struct row_apply *apply)
{
    return apply->table->shards[apply->table->shard];
}

/* ---- choice of the clock and the shard ---- */

/* Returns whether a pull of this or an earlier clock is open. Such a pull is answered before the
 * pushes of the clock are applied, because a pull reads the rows before these pushes. */
static bool has_earlier_pulls(const struct lane_table *table)
{
    list_for_each_entry (struct row_request, pull, &table->queues->pulls, link)
        if (pull->record->clock <= table->clock)
            return true;
    return false;
}

/* Returns the oldest push, the only one that SSP and ASP apply at a time; NULL: none. */
static struct row_request *apply_first(const struct lane_table *table)
{
    struct list *node = list_first(&table->queues->pushes);
    return node ? list_entry(node, struct row_request, link) : NULL;
}

/* Returns whether the oldest push may be applied without BSP. The push waits only for the first
 * settings of the table, which another rank may still have to send. A rank sends settings before
 * the end of its first clock. */
static bool may_apply_alone(const struct lane_table *table)
{
    const struct row_request *push = apply_first(table);
    return push && (table->changes->count > 0 ||
                    table_clocks_have_ended(table->clocks, push->record->clock));
}

static bool may_apply(const struct lane_table *table)
{
    if (!table_is_bsp(table))
        return may_apply_alone(table);
    return table_clocks_have_ended(table->clocks, table->clock) && !has_earlier_pulls(table);
}

/* Ends a clock that all shards of this lane have applied: its pushes get their answers. */
static void apply_end_clock(struct lane_table *table)
{
    list_for_each_safe_entry (struct row_request, push, &table->queues->pushes, link)
        if (push->record->clock <= table->clock)
            request_end(table, push);
    table->clock++;
    table->shard = 0;
}

/* Ends the oldest push, which all its shards of this lane have applied. */
static void apply_end_push(struct lane_table *table)
{
    request_end(table, apply_first(table));
    table->shard = 0;
    if (table->terms->consistency != TABLE_TERMS_ASP)
        return;
    table->job->tables->pushes++;
    table->job->tables->pushed_ns = clock_now_ns();
}

/* Returns whether the shard is on this lane, and, without BSP, in the directory of the oldest
 * push. */
static bool apply_has_shard(const struct lane_table *table)
{
    struct row_directory directory;
    struct row_span span;
    if (!table->shards[table->shard])
        return false;
    return table_is_bsp(table) ||
           request_map_directory(table, apply_first(table), &directory) < 0 ||
           row_directory_find(&directory, table->shard, &span) != -ENOENT;
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

/* ---- the parts of a shard ---- */

/* Copies the next keys of the part to its window. */
static int part_read(struct row_apply *apply, struct apply_part *part, uint32_t *ret_count)
{
    uint32_t left = part->span.count - part->read;
    uint32_t count = left < apply->window_keys ? left : apply->window_keys;
    const void *keys = request_map_keys(part->request, part->span.first + part->read, count);
    if (!keys)
        return -EFAULT;
    memcpy(part->window, keys, count * sizeof *part->window);
    part->window_at = part->read;
    part->read += count;
    *ret_count = count;
    return 0;
}

/* Finds the part of the push in the shard. -ENOENT: none. */
static int part_find(struct row_apply *apply, struct row_request *push, struct apply_part *ret_part)
{
    struct row_directory directory;
    struct row_span span;
    int error = request_map_directory(apply->table, push, &directory)
                    ?: row_directory_find(&directory, apply->table->shard, &span);
    if (error == 0)
        *ret_part = (struct apply_part){.request = push, .span = span};
    return error;
}

static int part_add(struct row_apply *apply, uint32_t index)
{
    struct apply_part *part = &apply->parts[index];
    const struct record_rows *r = part->request->record;
    uint32_t count;
    part->window = apply->windows + (size_t)index * apply->window_keys;
    int error = part_read(apply, part, &count);
    if (error < 0)
        return error;
    struct stripe_part added = {.rank = part->request->worker->number,
                                .sequence = r->sequence,
                                .keys = part->window,
                                .count = count,
                                .is_last = part->read == part->span.count};
    return stripe_add(apply->stripe, apply_shard(apply)->store, &added, NULL);
}

/* Returns whether the push is applied now: with BSP each push of the clock, else the oldest one. */
static bool apply_takes(const struct lane_table *table, const struct row_request *push)
{
    return table_is_bsp(table) ? push->record->clock == table->clock : push == apply_first(table);
}

/* Collects the pushes that have keys of the shard, in the order of (rank, sequence): the stripe
 * requires this order of its parts. */
static int apply_collect(struct row_apply *apply, uint32_t *ret_count)
{
    struct lane_table *table = apply->table;
    uint32_t count = 0;
    list_for_each_entry (struct row_request, push, &table->queues->pushes, link) {
        if (!apply_takes(table, push))
            continue;
        int error = part_find(apply, push, &apply->parts[count]);
        count += error == 0;
        if (error < 0 && error != -ENOENT) {
            request_evict(push, error);
            return error;
        }
    }
    *ret_count = count;
    return 0;
}

/* Begins the next shard. Returns a negative errno after an eviction. */
static int apply_open(struct row_apply *apply)
{
    uint32_t count;
    stripe_clear(apply->stripe);
    int error = apply_collect(apply, &count);
    if (error < 0)
        return error;
    apply->window_keys = ROW_WINDOW_KEYS_ALL / (count ? count : 1);
    for (uint32_t i = 0; i < count; i++) {
        error = part_add(apply, i);
        if (error < 0) {
            request_evict(apply->parts[i].request, error);
            return error;
        }
    }
    return 0;
}

/* Copies further keys of the parts whose windows the stripe has used up. Returns a negative errno
 * after an eviction. */
static int apply_show(struct row_apply *apply)
{
    const struct table_shard *store = apply_shard(apply)->store;
    for (uint32_t i = 0; i < apply->stripe->parts_count; i++) {
        struct apply_part *part = &apply->parts[i];
        uint32_t count;
        if (apply->stripe->parts[i].count > 0 || apply->stripe->parts[i].is_last)
            continue;
        int error = part_read(apply, part, &count);
        if (error == 0)
            error = stripe_show(apply->stripe, store, i, part->window, count,
                                part->read == part->span.count, NULL);
        if (error < 0) {
            request_evict(part->request, error);
            return error;
        }
    }
    return 0;
}

/* ---- one stripe ---- */

static int apply_open_rows(struct row_apply *apply)
{
    struct lane_table *table = apply->table;
    int64_t births = stripe_open(apply->stripe, apply_shard(apply)->store);
    if (births < 0)
        job_fail(table->job, (int)births,
                 "table '%s' of job '%s': lane %u has no memory for new rows (%s); raise "
                 "--job-memory-max, or use more lanes",
                 table->name, table->job->name, table->job->lane->options.id,
                 err_text((int)births));
    return births < 0 ? (int)births : 0;
}

static int apply_cut(struct row_apply *apply)
{
    int error = stripe_cut(apply->stripe);
    while (error == -EAGAIN) {
        error = apply_show(apply);
        if (error == 0)
            error = stripe_cut(apply->stripe);
    }
    if (error == 0)
        error = apply_open_rows(apply);
    apply->is_cut = error == 0;
    apply->at = 0;
    return error;
}

static int apply_map_rows(struct row_apply *apply)
{
    for (uint32_t i = 0; i < apply->stripe->parts_count; i++) {
        struct apply_part *part = &apply->parts[i];
        part->rows =
            request_map_rows(apply->table, part->request, part->span.first, part->span.count);
        if (!part->rows) {
            request_evict(part->request, -EFAULT);
            return -EFAULT;
        }
    }
    return 0;
}

/* Returns the gradient of a source in the worker's memory. The stripe advances its key pointer
 * within the window, so the keys that it has passed count, too. */
static const char *apply_gradient(const struct row_apply *apply, struct stripe_source source)
{
    const struct apply_part *part = &apply->parts[source.part];
    size_t passed = (size_t)(apply->stripe->parts[source.part].keys - part->window);
    size_t position = part->window_at + passed + source.position;
    return part->rows + position * apply->table->wire_bytes;
}

/* Returns the gradient in f32: in the worker's memory, or converted in apply.row, which the next
 * call overwrites. */
static const float *apply_read(const struct row_apply *apply, struct stripe_source source)
{
    const struct table_terms *terms = apply->table->terms;
    const void *gradient = apply_gradient(apply, source);
    if (terms->wire == REDUCE_F32)
        return gradient;
    reduce_convert(terms->wire, REDUCE_F32, gradient, apply->row, terms->dim);
    return apply->row;
}

static void apply_add(float *restrict sum, const float *restrict row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        sum[i] += row[i];
}

static void apply_sum_row(const struct row_apply *apply, uint32_t key, float *ret_sum)
{
    const struct stripe *s = apply->stripe;
    uint32_t dim = apply->table->terms->dim;
    memcpy(ret_sum, apply_read(apply, s->sources[s->starts[key]]), dim * sizeof *ret_sum);
    for (uint32_t i = s->starts[key] + 1; i < s->starts[key + 1]; i++)
        apply_add(ret_sum, apply_read(apply, s->sources[i]), dim);
}

/* Returns whether all bytes that were read came from the workers. */
static bool apply_is_sound(const struct row_apply *apply)
{
    for (uint32_t i = 0; i < apply->stripe->parts_count; i++)
        if (!fabric_is_sound(apply->parts[i].request->worker->conn))
            return false;
    return true;
}

static bool gradient_is_finite(const float *row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        if (!isfinite(row[i]))
            return false;
    return true;
}

/* Counts the skipped row in the answer of each push whose gradient is not finite. If all gradients
 * are finite and only their sum is not, the answers of all these pushes count the row. */
static void apply_count_skipped(struct row_apply *apply, uint32_t key)
{
    const struct stripe *s = apply->stripe;
    uint32_t found = 0;
    for (int all = 0; all < 2 && found == 0; all++) {
        for (uint32_t i = s->starts[key]; i < s->starts[key + 1]; i++) {
            struct row_request *push = apply->parts[s->sources[i].part].request;
            const float *gradient = apply_read(apply, s->sources[i]);
            if (!all && gradient_is_finite(gradient, apply->table->terms->dim))
                continue;
            found++;
            push->error = -EDOM;
            if (push->detail++ == 0)
                push->first_key = mixed_key_undo(s->keys[key], apply->table->salt);
        }
    }
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
            apply_count_skipped(apply, key);
    }
}

/* Applies the next rows of the cut stripe, up to ROW_SUMS_BYTES of sums. If a worker's memory
 * cannot be read, no row changes, the worker's connection ends, and the result is false. */
static bool apply_batch(struct row_apply *apply)
{
    uint32_t dim = apply->table->terms->dim,
             most = ROW_SUMS_BYTES / (dim * (uint32_t)sizeof(float));
    uint32_t left = apply->stripe->keys_count - apply->at;
    uint32_t end = apply->at + (left < most ? left : most);
    float *sum = apply->sums;
    if (apply_map_rows(apply) < 0)
        return false;
    for (uint32_t key = apply->at; key < end; key++, sum += dim)
        apply_sum_row(apply, key, sum);
    if (!apply_is_sound(apply))
        return false;
    apply_rows(apply, end);
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
    if (stripe->is_end || stripe->last == UINT64_MAX) /* a worker may repeat the largest key */
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
    uint64_t clock = table_is_bsp(table) ? table->clock : apply_first(table)->record->clock;
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
    apply->step = row_step(settings, clock, is_mean ? members : 1,
                           table->terms->flags & TABLE_TERMS_ACCEPT_NONFINITE);
    return 0;
}

/* Begins the next shard of the table. Returns false if the clock must wait for ranks or pulls. */
static bool apply_begin(struct row_apply *apply, struct lane_table *table)
{
    if (!may_apply(table))
        return false;
    if (!apply_find_shard(table))
        return true;
    apply->table = table;
    apply->is_cut = false;
    if (apply_open(apply) < 0) {
        apply->table = NULL;
        return true;
    }
    if (apply->stripe->parts_count == 0)
        apply_end_shard(apply);
    else if (apply_find_step(apply) < 0)
        apply->table = NULL;
    return true;
}

static bool apply_begin_any(struct lane_tables *tables)
{
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        if (apply_begin(tables->apply, table))
            return true;
    return false;
}

bool apply_work(struct lane_tables *tables)
{
    struct row_apply *apply = tables->apply;
    if (!apply->table)
        return apply_begin_any(tables);
    if (!apply->is_cut && apply_cut(apply) < 0)
        return false;
    if (!apply_batch(apply))
        return false;
    apply_advance(apply);
    return true;
}

void apply_forget(struct lane_tables *tables, uint32_t rank)
{
    struct row_apply *apply = tables->apply;
    uint32_t kept = 0;
    if (!apply->table)
        return;
    for (uint32_t i = 0; i < apply->stripe->parts_count; i++)
        if (apply->parts[i].request->worker->number != rank)
            apply->parts[kept++] = apply->parts[i];
    if (stripe_drop_rank(apply->stripe, rank) == 0)
        return;
    if (kept == 0 && !table_is_bsp(apply->table)) {
        apply->table = NULL; /* the only push is dropped; the next one begins at its first shard */
        return;
    }
    if (apply->is_cut)
        stripe_skip(apply->stripe, apply_shard(apply)->progress.next);
    apply->is_cut = false;
}
