/* Cuts the pushes of a clock into stripes and merges their keys. Owns arrays of fixed length, and
 * never reads a gradient. */
#include "svc/lane/table/stripe.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* The arrays of a stripe with their lengths, for both allocation and release. */
#define STRIPE_ARRAYS 6
struct stripe_array {
    void **memory;
    size_t bytes;
};

static void stripe_arrays(struct stripe *s, struct stripe_array ret_arrays[STRIPE_ARRAYS])
{
    const struct stripe_array arrays[STRIPE_ARRAYS] = {
        {(void **)&s->parts, s->parts_max * sizeof *s->parts},
        {(void **)&s->keys, s->sources_max * sizeof *s->keys},
        {(void **)&s->rows, s->sources_max * sizeof *s->rows},
        {(void **)&s->starts, (s->sources_max + (size_t)1) * sizeof *s->starts},
        {(void **)&s->sources, s->sources_max * sizeof *s->sources},
        {(void **)&s->heads, s->parts_max * sizeof *s->heads},
    };
    memcpy(ret_arrays, arrays, sizeof arrays);
}

int stripe_init(struct stripe *stripe, struct allowance *allowance, uint32_t parts_max,
                uint32_t sources_max)
{
    struct stripe_array arrays[STRIPE_ARRAYS];
    assert(parts_max >= 1 && sources_max >= parts_max);
    *stripe =
        (struct stripe){.allowance = allowance, .parts_max = parts_max, .sources_max = sources_max};
    stripe_arrays(stripe, arrays);
    for (int i = 0; i < STRIPE_ARRAYS; i++) {
        int error = allowance_alloc(allowance, arrays[i].bytes, arrays[i].memory);
        if (error < 0) {
            stripe_fini(stripe);
            return error;
        }
    }
    return 0;
}

void stripe_fini(struct stripe *stripe)
{
    struct stripe_array arrays[STRIPE_ARRAYS];
    stripe_arrays(stripe, arrays);
    for (int i = 0; i < STRIPE_ARRAYS; i++)
        if (*arrays[i].memory)
            allowance_free(stripe->allowance, *arrays[i].memory, arrays[i].bytes);
    *stripe = (struct stripe){.allowance = stripe->allowance};
}

static void stripe_forget_cut(struct stripe *stripe)
{
    stripe->keys_count = stripe->sources_count = 0;
    stripe->is_end = false;
    for (uint32_t part = 0; part < stripe->parts_count; part++)
        stripe->parts[part].taken = 0;
}

void stripe_clear(struct stripe *stripe)
{
    stripe->parts_count = 0;
    stripe_forget_cut(stripe);
}

/* Returns the position of the first key that is below `next`, not ascending, or not of the shard.
 * Returns `count` if all keys are valid. */
static size_t stripe_wrong_key(const struct table_shard *shard, const uint64_t *keys, size_t count,
                               uint64_t next)
{
    for (size_t i = 0; i < count; i++)
        if (!table_shard_has_range(shard, keys[i]) || keys[i] < next ||
            (i > 0 && keys[i] <= keys[i - 1]))
            return i;
    return count;
}

static int stripe_set_window(const struct table_shard *shard, struct stripe_part *part,
                             const uint64_t *keys, size_t count, size_t *ret_position)
{
    size_t wrong = stripe_wrong_key(shard, keys, count, part->next);
    assert(count < UINT32_MAX);
    if (wrong < count) {
        if (ret_position)
            *ret_position = wrong;
        return -EBADMSG;
    }
    part->keys = keys;
    part->count = count;
    if (count > 0) /* after UINT64_MAX no other key can follow */
        part->next = keys[count - 1] + (keys[count - 1] < UINT64_MAX);
    return 0;
}

static bool stripe_is_before(const struct stripe_part *left, const struct stripe_part *right)
{
    return left->rank != right->rank ? left->rank < right->rank : left->sequence < right->sequence;
}

int stripe_add(struct stripe *stripe, const struct table_shard *shard,
               const struct stripe_part *part, size_t *ret_position)
{
    struct stripe_part added = *part;
    uint32_t at = stripe->parts_count;
    added.next = 0;
    int error = stripe_set_window(shard, &added, part->keys, part->count, ret_position);
    if (error < 0)
        return error;
    while (at > 0 && stripe_is_before(part, &stripe->parts[at - 1]))
        at--;
    if (at > 0 && !stripe_is_before(&stripe->parts[at - 1], part))
        return -EALREADY;
    if (stripe->parts_count == stripe->parts_max)
        return -ENOSPC;
    memmove(&stripe->parts[at + 1], &stripe->parts[at],
            (stripe->parts_count - at) * sizeof *stripe->parts);
    stripe->parts[at] = added;
    stripe->parts_count++;
    stripe_forget_cut(stripe);
    return 0;
}

int stripe_show(struct stripe *stripe, const struct table_shard *shard, uint32_t part,
                const uint64_t *keys, size_t count, bool is_last, size_t *ret_position)
{
    struct stripe_part *p = &stripe->parts[part];
    assert(part < stripe->parts_count && p->count == 0 && !p->is_last);
    int error = stripe_set_window(shard, p, keys, count, ret_position);
    if (error < 0)
        return error;
    p->is_last = is_last;
    stripe_forget_cut(stripe);
    return 0;
}

uint32_t stripe_drop_rank(struct stripe *stripe, uint32_t rank)
{
    uint32_t kept = 0, before = stripe->parts_count;
    for (uint32_t part = 0; part < before; part++)
        if (stripe->parts[part].rank != rank)
            stripe->parts[kept++] = stripe->parts[part];
    stripe->parts_count = kept;
    if (kept < before)
        stripe_forget_cut(stripe);
    return before - kept;
}

/* Returns the number of keys of the window up to `last`. */
static size_t stripe_count_up_to(const struct stripe_part *part, uint64_t last)
{
    size_t low = 0, high = part->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (part->keys[middle] <= last)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void stripe_skip(struct stripe *stripe, uint64_t next)
{
    for (uint32_t part = 0; next > 0 && part < stripe->parts_count; part++) {
        struct stripe_part *p = &stripe->parts[part];
        size_t applied = stripe_count_up_to(p, next - 1);
        p->keys += applied;
        p->count -= applied;
    }
    stripe_forget_cut(stripe);
}

static size_t stripe_gradients_up_to(const struct stripe *stripe, uint64_t last)
{
    size_t count = 0;
    for (uint32_t part = 0; part < stripe->parts_count; part++)
        count += stripe_count_up_to(&stripe->parts[part], last);
    return count;
}

/* Finds the largest key up to which all windows are complete. UINT64_MAX: every window is the last
 * window of its part. -EAGAIN: a window is empty, and its part has more keys. */
static int stripe_shown(const struct stripe *stripe, uint64_t *ret_last)
{
    uint64_t last = UINT64_MAX;
    for (uint32_t part = 0; part < stripe->parts_count; part++) {
        const struct stripe_part *p = &stripe->parts[part];
        if (p->is_last)
            continue;
        if (p->count == 0)
            return -EAGAIN;
        if (p->keys[p->count - 1] < last)
            last = p->keys[p->count - 1];
    }
    *ret_last = last;
    return 0;
}

static uint64_t stripe_first_key(const struct stripe *stripe)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t part = 0; part < stripe->parts_count; part++)
        if (stripe->parts[part].count > 0 && stripe->parts[part].keys[0] < first)
            first = stripe->parts[part].keys[0];
    return first;
}

/* Returns the largest key, at most `shown`, so that the keys up to this key have at most
 * sources_max gradients. The first key always fits, because each part has at most one gradient of a
 * key. */
static uint64_t stripe_fitting(const struct stripe *stripe, uint64_t shown)
{
    uint64_t fits = stripe_first_key(stripe), over = shown;
    if (stripe_gradients_up_to(stripe, shown) <= stripe->sources_max)
        return shown;
    while (over - fits > 1) {
        uint64_t middle = fits + (over - fits) / 2;
        if (stripe_gradients_up_to(stripe, middle) <= stripe->sources_max)
            fits = middle;
        else
            over = middle;
    }
    return fits;
}

/* ---- merge: a heap of the next key of each part, smallest (key, part) on top ---- */

static bool stripe_head_is_before(const struct stripe_head *left, const struct stripe_head *right)
{
    return left->key != right->key ? left->key < right->key : left->part < right->part;
}

/* Moves heads[at] down to its position in the heap. */
static void stripe_sink(struct stripe_head *heads, uint32_t count, uint32_t at)
{
    struct stripe_head head = heads[at];
    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && stripe_head_is_before(&heads[child + 1], &heads[child]))
            child++;
        if (!stripe_head_is_before(&heads[child], &head))
            break;
        heads[at] = heads[child];
        at = child;
    }
    heads[at] = head;
}

static uint32_t stripe_heap(struct stripe *stripe)
{
    uint32_t count = 0;
    for (uint32_t part = 0; part < stripe->parts_count; part++)
        if (stripe->parts[part].taken > 0)
            stripe->heads[count++] = (struct stripe_head){stripe->parts[part].keys[0], part, 0};
    for (uint32_t at = count / 2; at-- > 0;)
        stripe_sink(stripe->heads, count, at);
    return count;
}

/* Replaces the top by the next key of its part. Returns the remaining number of heads. */
static uint32_t stripe_next_head(struct stripe *stripe, uint32_t count)
{
    struct stripe_head *heads = stripe->heads, *top = &heads[0];
    const struct stripe_part *part = &stripe->parts[top->part];
    if (top->position + 1 < part->taken) {
        top->position++;
        top->key = part->keys[top->position];
    } else {
        *top = heads[--count];
    }
    if (count > 0)
        stripe_sink(heads, count, 0);
    return count;
}

static void stripe_merge(struct stripe *stripe)
{
    uint32_t count = stripe_heap(stripe), keys = 0, sources = 0;
    while (count > 0) {
        const struct stripe_head *top = &stripe->heads[0];
        if (keys == 0 || stripe->keys[keys - 1] != top->key) {
            stripe->starts[keys] = sources;
            stripe->keys[keys++] = top->key;
        }
        stripe->sources[sources++] = (struct stripe_source){top->part, top->position};
        count = stripe_next_head(stripe, count);
    }
    stripe->starts[keys] = sources;
    stripe->keys_count = keys;
    stripe->sources_count = sources;
}

int stripe_cut(struct stripe *stripe)
{
    uint64_t shown;
    stripe_forget_cut(stripe);
    int error = stripe_shown(stripe, &shown);
    if (error < 0)
        return error;
    stripe->last = stripe_fitting(stripe, shown);
    stripe->is_end = true;
    for (uint32_t part = 0; part < stripe->parts_count; part++) {
        struct stripe_part *p = &stripe->parts[part];
        p->taken = stripe_count_up_to(p, stripe->last);
        stripe->is_end &= p->is_last && p->taken == p->count;
    }
    stripe_merge(stripe);
    return 0;
}

int64_t stripe_open(struct stripe *stripe, struct table_shard *shard)
{
    return table_shard_add(shard, stripe->keys, stripe->keys_count, stripe->rows);
}

void stripe_pass(struct stripe *stripe)
{
    for (uint32_t part = 0; part < stripe->parts_count; part++) {
        struct stripe_part *p = &stripe->parts[part];
        p->keys += p->taken;
        p->count -= p->taken;
    }
    stripe_forget_cut(stripe);
}
