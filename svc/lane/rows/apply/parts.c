/* Collects the pushes that have keys of a shard. Keys are copied to windows before they are checked
 * and merged, because the worker may change them. RULES.md: A91, A99, A103. */
#include "svc/lane/rows/apply/parts.h"

#include "svc/lane/rows/apply/ahead.h"
#include "svc/lane/rows/directory.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/table.h"

#include <errno.h>
#include <string.h>

/* ---- the windows ---- */

static uint32_t part_next(const struct row_apply *apply, const struct apply_part *part)
{
    uint32_t left = part->span.count - part->read;
    return left < apply->window_keys ? left : apply->window_keys;
}

static int part_copy(const struct row_apply *apply, struct apply_part *part)
{
    uint32_t count = part_next(apply, part);
    const void *keys = part->keys
                           ? part->keys + part->read
                           : request_map_keys(part->request, part->span.first + part->read, count);
    if (!keys)
        return -EFAULT;
    memcpy(part->window, keys, count * sizeof *part->window);
    return 0;
}

/* Returns -EAGAIN also for a read that has failed, because the CLOSED event of the connection
 * follows. */
static int part_fetch(const struct row_apply *apply, struct apply_part *part)
{
    const struct record_rows *r = part->request->record;
    uint64_t first = part->span.first + part->read;
    if (part->fetch->state == FETCH_IDLE)
        return network_read(part->fetch, part->request->worker, r->keys_region,
                            r->keys_offset + first * sizeof(uint64_t), part->window,
                            part_next(apply, part) * sizeof(uint64_t));
    if (part->fetch->state != FETCH_DONE)
        return -EAGAIN;
    part->fetch->state = FETCH_IDLE;
    return 0;
}

/* Fills the window of the part with the next keys, unless the window still has keys that are not in
 * the stripe. */
static int part_fill(const struct row_apply *apply, struct apply_part *part)
{
    if (part->shown > 0)
        return 0;
    int error = part->fetch ? part_fetch(apply, part) : part_copy(apply, part);
    if (error < 0)
        return error;
    part->shown = part_next(apply, part);
    part->window_at = part->read;
    part->read += part->shown;
    return 0;
}

/* ---- the parts ---- */

/* Adds the part of the push in the shard. -ENOENT: the push has no keys in the shard. */
static int part_find(struct row_apply *apply, struct lane_table *table, struct row_request *push)
{
    struct row_span span;
    int error = directory_find(table, push, table->shard, &span);
    if (error == 0)
        apply->parts[apply->parts_count++] = (struct apply_part){.request = push, .span = span};
    return error;
}

/* Finds the keys and rows that were read ahead. -EAGAIN: some keys or rows have not arrived yet.
 * After other errors the worker was evicted. */
static int parts_find_ahead(struct row_apply *apply, const struct lane_table *table)
{
    struct row_network *network = table->job->tables->network;
    uint32_t at = 0;
    int error = network ? ahead_read(network, table) : 0;
    for (uint32_t i = 0; network && error == 0 && i < apply->parts_count; i++) {
        struct apply_part *part = &apply->parts[i];
        if (!request_is_mapped(part->request))
            error = ahead_find(network, table, part->request, &part->span, &at, &part->keys,
                               &part->rows);
    }
    return error;
}

static void parts_place_windows(struct row_apply *apply, const struct lane_table *table)
{
    struct row_network *network = table->job->tables->network;
    uint32_t count = apply->parts_count;
    apply->window_keys = ROW_WINDOW_KEYS_ALL / (count ? count : 1);
    apply->is_fetched = false;
    for (uint32_t i = 0; i < count; i++) {
        struct apply_part *part = &apply->parts[i];
        part->window = apply->windows + (size_t)i * apply->window_keys;
        if (part->keys || request_is_mapped(part->request))
            continue;
        part->fetch = &network->windows[i];
        part->fetch->state = FETCH_IDLE;
        apply->is_fetched = true;
    }
}

int parts_collect(struct row_apply *apply, struct lane_table *table)
{
    bool is_late = false;
    apply->parts_count = 0;
    list_for_each_entry (struct row_request, push, &table->queues->pushes, link) {
        if (!parts_is_due(table, push))
            continue;
        int error = part_find(apply, table, push);
        is_late |= error == -EAGAIN;
        if (error < 0 && error != -ENOENT && error != -EAGAIN) {
            request_evict(push, error);
            return error;
        }
    }
    int error = is_late ? -EAGAIN : parts_find_ahead(apply, table);
    if (error == 0)
        parts_place_windows(apply, table);
    return error;
}

/* Returns the smallest key of the shard that has no update of this clock or push yet. After a
 * promotion, a part of the updates was made by the former owner (A131). */
static uint64_t parts_first_key(const struct row_apply *apply)
{
    const struct lane_table *table = apply->table;
    const struct row_progress *before = &table->queues->logged.progress;
    const struct row_request *push = parts_first_push(table);
    if (table_is_bsp(table) || before->sequence == 0 || !push)
        return apply_shard(apply)->progress.next;
    bool is_same = row_logged_is_of(&table->queues->logged, push) && table->shard == before->shard;
    uint64_t next = apply_shard(apply)->progress.next;
    return is_same && before->next > next ? before->next : next;
}

static int part_add(struct row_apply *apply, struct apply_part *part)
{
    struct stripe_part added = {.rank = part->request->worker->number,
                                .sequence = part->request->record->sequence,
                                .keys = part->window,
                                .count = part->shown,
                                .is_last = part->read == part->span.count};
    part->shown = 0;
    return stripe_add(apply->stripe, apply_shard(apply)->store, &added, NULL);
}

/* Fills the windows that the stripe has used up, or all windows if the stripe is not open. */
static int parts_fill(struct row_apply *apply)
{
    const struct stripe *stripe = apply->stripe;
    bool is_late = false;
    for (uint32_t i = 0; i < apply->parts_count; i++) {
        if (apply->is_open && (stripe->parts[i].count > 0 || stripe->parts[i].is_last))
            continue;
        int error = part_fill(apply, &apply->parts[i]);
        is_late |= error == -EAGAIN;
        if (error < 0 && error != -EAGAIN) {
            request_evict(apply->parts[i].request, error);
            return error;
        }
    }
    return is_late ? -EAGAIN : 0;
}

int parts_open(struct row_apply *apply)
{
    int error = parts_fill(apply);
    for (uint32_t i = 0; error == 0 && i < apply->parts_count; i++) {
        error = part_add(apply, &apply->parts[i]);
        if (error < 0)
            request_evict(apply->parts[i].request, error);
    }
    apply->is_open = error == 0;
    if (error == 0)
        stripe_skip(apply->stripe, parts_first_key(apply));
    return error;
}

int parts_show(struct row_apply *apply)
{
    int error = parts_fill(apply);
    for (uint32_t i = 0; error == 0 && i < apply->parts_count; i++) {
        struct apply_part *part = &apply->parts[i];
        if (part->shown == 0)
            continue;
        error = stripe_show(apply->stripe, apply_shard(apply)->store, i, part->window, part->shown,
                            part->read == part->span.count, NULL);
        part->shown = 0;
        if (error < 0)
            request_evict(part->request, error);
    }
    if (error == 0)
        stripe_skip(apply->stripe, parts_first_key(apply));
    return error;
}

uint32_t parts_drop_rank(struct row_apply *apply, uint32_t rank)
{
    uint32_t kept = 0, count = apply->parts_count;
    for (uint32_t i = 0; i < count; i++)
        if (apply->parts[i].request->worker->number != rank)
            apply->parts[kept++] = apply->parts[i];
    apply->parts_count = kept;
    (void)stripe_drop_rank(apply->stripe, rank);
    return count - kept;
}
