/* Sums gradients. The bytes are in the memory of a worker, which may change them until they are
 * summed. */
#include "svc/lane/rows/apply/sums.h"

#include "svc/lane/rows/apply/parts.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/request.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static struct row_network *sums_network(const struct row_apply *apply)
{
    return apply->table->job->tables->network;
}

/* Returns the position of a source in the span of its part. A source counts from the stripe's
 * pointer into the window, so the number of keys before this pointer is added. */
static uint32_t source_position(const struct row_apply *apply, struct stripe_source source)
{
    const struct apply_part *part = &apply->parts[source.part];
    size_t passed = (size_t)(apply->stripe->parts[source.part].keys - part->window);
    return part->window_at + (uint32_t)passed + source.position;
}

/* Returns the gradient in f32: in place, or converted in apply.row, which the next call
 * overwrites. */
static const float *sums_convert(const struct row_apply *apply, const char *gradient)
{
    const struct table_terms *terms = apply->table->terms;
    if (terms->wire == REDUCE_F32)
        return (const float *)(const void *)gradient;
    reduce_convert(terms->wire, REDUCE_F32, gradient, apply->row, terms->dim);
    return apply->row;
}

static void sums_add(float *restrict sum, const float *restrict row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        sum[i] += row[i];
}

static bool gradient_is_finite(const float *row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        if (!isfinite(row[i]))
            return false;
    return true;
}

/* ---- mapped memory ---- */

static int sums_map(struct row_apply *apply)
{
    for (uint32_t i = 0; i < apply->parts_count; i++) {
        struct apply_part *part = &apply->parts[i];
        if (part->fetch || part->keys)
            continue;
        part->rows =
            request_map_rows(apply->table, part->request, part->span.first, part->span.count);
        if (!part->rows) {
            request_evict(part->request, -EFAULT);
            return -EFAULT;
        }
    }
    return 0;
}

static const float *sums_read(const struct row_apply *apply, struct stripe_source source)
{
    size_t at = source_position(apply, source) * apply->table->wire_bytes;
    return sums_convert(apply, apply->parts[source.part].rows + at);
}

static void sums_of_key(const struct row_apply *apply, uint32_t key, float *ret_sum)
{
    const struct stripe *s = apply->stripe;
    uint32_t dim = apply->table->terms->dim;
    memcpy(ret_sum, sums_read(apply, s->sources[s->starts[key]]), dim * sizeof *ret_sum);
    for (uint32_t i = s->starts[key] + 1; i < s->starts[key + 1]; i++)
        sums_add(ret_sum, sums_read(apply, s->sources[i]), dim);
}

static void sums_make_mapped(struct row_apply *apply, uint32_t end)
{
    uint32_t dim = apply->table->terms->dim;
    float *sum = apply->sums;
    for (uint32_t key = apply->at; key < end; key++, sum += dim)
        sums_of_key(apply, key, sum);
}

/* ---- a batch with parts over a network ---- */

/* Counts the rows of each part, which are consecutive because the keys of a part ascend. */
static void batch_count(struct row_apply *apply, uint32_t end)
{
    const struct stripe *s = apply->stripe;
    uint32_t order = 0;
    for (uint32_t i = 0; i < apply->parts_count; i++) {
        apply->parts[i].batch_count = apply->parts[i].skipped = 0;
        apply->parts[i].skipped_key = 0;
    }
    for (uint32_t i = s->starts[apply->at]; i < s->starts[end]; i++) {
        struct apply_part *part = &apply->parts[s->sources[i].part];
        if (part->batch_count++ == 0)
            part->batch_first = source_position(apply, s->sources[i]);
    }
    for (uint32_t i = 0; i < apply->parts_count; i++) {
        apply->parts[i].batch_order = order;
        order += apply->parts[i].batch_count;
        apply->parts[i].batch_count = 0;
    }
}

static void batch_begin(struct row_apply *apply, uint32_t end)
{
    struct row_network *n = sums_network(apply);
    const struct stripe *s = apply->stripe;
    batch_count(apply, end);
    for (uint32_t key = apply->at; key < end; key++) {
        for (uint32_t i = s->starts[key]; i < s->starts[key + 1]; i++) {
            struct apply_part *part = &apply->parts[s->sources[i].part];
            n->order[part->batch_order + part->batch_count++] = key - apply->at;
        }
    }
    memset(n->has_skipped, 0, (end - apply->at) * sizeof *n->has_skipped);
    n->posted = n->summed = 0;
    n->has_batch = true;
}

/* Requests the rows of further parts, as far as slots are free. */
static int batch_post(struct row_apply *apply)
{
    struct row_network *n = sums_network(apply);
    size_t bytes = apply->table->wire_bytes;
    for (; n->posted < apply->parts_count && n->posted - n->summed < ROW_SLOTS; n->posted++) {
        const struct apply_part *part = &apply->parts[n->posted];
        const struct record_rows *r = part->request->record;
        struct row_slot *slot = &n->slots[n->posted % ROW_SLOTS];
        if (!part->fetch || part->batch_count == 0)
            continue;
        /* a read of a dropped batch still writes to this slot */
        if (slot->fetch.state != FETCH_IDLE)
            return -EAGAIN;
        int error =
            network_read(&slot->fetch, part->request->worker, r->rows_region,
                         r->rows_offset + ((uint64_t)part->span.first + part->batch_first) * bytes,
                         slot->memory, part->batch_count * bytes);
        if (slot->fetch.state != FETCH_POSTED)
            return error;
    }
    return 0;
}

/* Adds the rows of a part to the sums. The first row of a key becomes its sum. */
static void batch_add(struct row_apply *apply, uint32_t index, const char *rows)
{
    const struct stripe *s = apply->stripe;
    struct row_network *n = sums_network(apply);
    struct apply_part *part = &apply->parts[index];
    uint32_t dim = apply->table->terms->dim;
    for (uint32_t i = 0; i < part->batch_count; i++, rows += apply->table->wire_bytes) {
        uint32_t key = n->order[part->batch_order + i];
        const float *row = sums_convert(apply, rows);
        float *sum = apply->sums + (size_t)key * dim;
        if (s->sources[s->starts[apply->at + key]].part == index)
            memcpy(sum, row, dim * sizeof *sum);
        else
            sums_add(sum, row, dim);
        if (apply->step.accepts_nonfinite || gradient_is_finite(row, dim))
            continue;
        n->has_skipped[key] = true;
        if (part->skipped++ == 0)
            part->skipped_key = s->keys[apply->at + key];
    }
}

/* Adds the rows of the next part. -EAGAIN: these rows have not arrived yet. */
static int batch_add_next(struct row_apply *apply)
{
    struct row_network *n = sums_network(apply);
    const struct apply_part *part = &apply->parts[n->summed];
    struct row_slot *slot = &n->slots[n->summed % ROW_SLOTS];
    bool is_read = part->fetch && part->batch_count > 0;
    if (n->summed == n->posted || (is_read && slot->fetch.state != FETCH_DONE))
        return -EAGAIN;
    if (is_read)
        batch_add(apply, n->summed, slot->memory);
    else if (part->batch_count > 0)
        batch_add(apply, n->summed, part->rows + part->batch_first * apply->table->wire_bytes);
    if (is_read)
        slot->fetch.state = FETCH_IDLE;
    n->summed++;
    return 0;
}

static int sums_make_fetched(struct row_apply *apply, uint32_t end)
{
    struct row_network *n = sums_network(apply);
    if (!n->has_batch)
        batch_begin(apply, end);
    int error = batch_post(apply);
    while (n->summed < apply->parts_count && (error == 0 || error == -EAGAIN)) {
        int late = batch_add_next(apply);
        if (late < 0)
            return late;
        error = batch_post(apply);
    }
    if (error == -EAGAIN || error == 0)
        return 0;
    request_evict(apply->parts[n->posted].request, error);
    return error;
}

/* ---- both ---- */

/* Returns false if a page of a worker could not be read, so that some sums have wrong bytes. */
static bool sums_are_sound(const struct row_apply *apply)
{
    for (uint32_t i = 0; i < apply->parts_count; i++)
        if (!fabric_is_sound(apply->parts[i].request->worker->conn))
            return false;
    return true;
}

int sums_make(struct row_apply *apply, uint32_t end)
{
    int error = sums_map(apply);
    if (error < 0)
        return error;
    if (apply->is_fetched)
        error = sums_make_fetched(apply, end);
    else
        sums_make_mapped(apply, end);
    if (error < 0)
        return error;
    return sums_are_sound(apply) ? 0 : -EFAULT;
}

static void push_count_skipped(struct row_request *push, uint32_t rows, uint64_t key)
{
    if (rows == 0)
        return;
    push->error = -EDOM;
    if (push->detail == 0)
        push->first_key = key;
    push->detail += rows;
}

/* Counts the row for the pushes whose gradients are not finite, or with `all` for every push that
 * has the key. Returns the number of these pushes. */
static uint32_t sums_count_mapped(struct row_apply *apply, uint32_t key, bool all)
{
    const struct stripe *s = apply->stripe;
    uint64_t name = mixed_key_undo(s->keys[key], apply->table->salt);
    uint32_t found = 0;
    for (uint32_t i = s->starts[key]; i < s->starts[key + 1]; i++) {
        struct row_request *push = apply->parts[s->sources[i].part].request;
        if (!all && gradient_is_finite(sums_read(apply, s->sources[i]), apply->table->terms->dim))
            continue;
        push_count_skipped(push, 1, name);
        found++;
    }
    return found;
}

/* The gradients of a fetched batch are no longer in memory, so batch_add() has counted those that
 * are not finite. If it has counted none for the key, every push with the key counts the row. */
static void sums_count_fetched(struct row_apply *apply, uint32_t key)
{
    const struct stripe *s = apply->stripe;
    if (sums_network(apply)->has_skipped[key - apply->at])
        return;
    for (uint32_t i = s->starts[key]; i < s->starts[key + 1]; i++) {
        struct apply_part *part = &apply->parts[s->sources[i].part];
        if (part->skipped++ == 0 || s->keys[key] < part->skipped_key)
            part->skipped_key = s->keys[key];
    }
}

void sums_count_skipped(struct row_apply *apply, uint32_t key)
{
    if (apply->is_fetched)
        sums_count_fetched(apply, key);
    else if (sums_count_mapped(apply, key, false) == 0)
        (void)sums_count_mapped(apply, key, true);
}

void sums_end(struct row_apply *apply)
{
    if (!apply->is_fetched)
        return;
    for (uint32_t i = 0; i < apply->parts_count; i++) {
        const struct apply_part *part = &apply->parts[i];
        push_count_skipped(part->request, part->skipped,
                           mixed_key_undo(part->skipped_key, apply->table->salt));
    }
    sums_network(apply)->has_batch = false;
}

void sums_abort(struct row_apply *apply)
{
    if (!apply->is_fetched)
        return;
    struct row_network *n = sums_network(apply);
    for (uint32_t i = 0; i < ROW_SLOTS; i++)
        network_abort(&n->slots[i].fetch);
    n->has_batch = false;
}
