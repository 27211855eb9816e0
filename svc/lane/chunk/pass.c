/* One pass of a chunk. Up to REDUCE_SOURCES_MAX inputs are read into slots or used in place,
 * reduced in rank order, and stored in every mapped output area. This file owns no memory. A
 * pointer into a worker's memory is valid within one turn only, because the worker may unmap the
 * memory. RULES.md: A7, A14, A15. */
#include "svc/lane/chunk/pass.h"

#include "svc/lane/chunk/stuck.h"
#include "svc/lane/piece/kept.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/state/replica.h"
#include "svc/lane/state/sample.h"
#include "svc/lane/worker/window.h"

#include <errno.h>
#include <string.h>

#define MAPPED_AT_ONCE_BYTES (64u << 10) /* default of the kernel's fault_around_bytes */

static char *slot_at(const struct transfer *t, uint32_t index)
{
    return t->slots + index * t->slot_bytes;
}
static char *partial_slot(const struct transfer *t) { return slot_at(t, 0); }
static char *input_slot(const struct transfer *t, uint32_t source)
{
    return slot_at(t, source + 1);
}

/* Returns the slot for the result. A result with the type of the partial result replaces the
 * partial result. A result with another type replaces the first input, because a kernel may write
 * its result over an input of the same type, but cannot write narrower values over wider ones (R4
 * of svc/reduce). */
static char *result_slot(const struct transfer *t)
{
    unsigned dtype = t->piece->dtype;
    return reduce_accumulator(dtype) == dtype ? partial_slot(t) : input_slot(t, 0);
}

const void *pass_result(const struct transfer *t) { return result_slot(t); }

/* ---- addresses of inputs and results ---- */

/* Returns the offset of an input in the memory of its rank. `block` or `slot` is 0, because an
 * input with several blocks has one slot, and an input with several slots (A125) has one block. */
static uint64_t input_offset(const struct transfer *t, const struct announcement *a, uint32_t slot)
{
    if (replica_is_fetched(t->piece))
        return replica_offset(t);
    uint64_t block = t->target == OPERATION_EVERYBODY ? t->array : t->target;
    return a->input_offset + (block + slot) * a->input_stride + piece_bytes(t->piece, t->first);
}

static uint32_t input_region(const struct transfer *t, const struct announcement *a)
{
    return replica_is_fetched(t->piece) ? t->piece->parameters->replica.region : a->input_region;
}

uint64_t pass_output_offset(const struct transfer *t, uint32_t place)
{
    const struct announcement *a = t->piece->ranks[place].part;
    uint64_t block = (t->source == OPERATION_EVERYBODY ? t->array : t->source) * a->output_stride;
    return a->output_offset + block + piece_bytes(t->piece, t->first);
}

void *pass_map_output(const struct transfer *t, uint32_t place)
{
    struct piece *p = t->piece;
    struct fabric_conn *conn = p->ranks[place].worker->conn;
    if (!conn)
        return NULL;
    return fabric_map(conn, p->ranks[place].part->output_region, pass_output_offset(t, place),
                      piece_bytes(p, t->elements));
}

/* Returns the address of an input that is inline or mapped, or NULL if it has to be read. */
static const void *look_at(const struct transfer *t, uint32_t place, uint32_t slot)
{
    const struct piece *p = t->piece;
    const struct announcement *a = p->ranks[place].part;
    struct fabric_conn *conn = p->ranks[place].worker->conn;
    if (!conn)
        return NULL;
    if (a && a->payload && slot == 0)
        return (const char *)a->payload + piece_bytes(p, t->first);
    return fabric_map(conn, input_region(t, a), input_offset(t, a, slot),
                      piece_bytes(p, t->elements));
}

static char *kept_at(const struct transfer *t)
{
    return kept_result(t->piece, t->piece->round) + piece_bytes(t->piece, t->first);
}

/* Returns the lane's own input, which is added before the inputs of workers: the running sum, or
 * the state in a SAVE. NULL: the round has no such input. */
static const void *own_input(const struct transfer *t)
{
    const struct piece *p = t->piece;
    if (p->elements == 0)
        return NULL;
    if (quorum_is_loose(p) && p->kept_from > 0)
        return kept_at(t);
    return parameters_saved(t);
}

/* ---- reading ---- */

/* Posts a read. A fabric over shared memory gets a read only for an input that could not be mapped,
 * and such a read fails, too. The lane allocates no window for such a read, because the job might
 * lack the memory for a window (A17). */
static int post_read(struct transfer *t, uint32_t place, uint32_t slot_of_rank)
{
    struct piece *p = t->piece;
    const struct announcement *a = p->ranks[place].part;
    struct worker *w = p->ranks[place].worker;
    if (!w->conn)
        return -ECONNRESET;
    int error = fabric_maps(w->fabric) ? 0 : window_open(p->job);
    if (error < 0)
        return error;
    uint32_t source = t->sources - (own_input(t) && !t->has_partial);
    char *slot = t->slots ? input_slot(t, source) : NULL;
    error = fabric_read(w->conn, input_region(t, a), input_offset(t, a, slot_of_rank), slot,
                        piece_bytes(p, t->elements), t);
    if (error < 0)
        return error;
    t->input[t->sources] = slot;
    t->outstanding++;
    stuck_posted(w, 1);
    return 0;
}

/* Adds the next input of the member `next_rank` to the pass. */
static int pass_read_next(struct transfer *t)
{
    uint32_t place = t->next_rank, slot = t->next_slot;
    t->input[t->sources] = NULL;
    t->source_rank[t->sources] = place;
    t->source_slot[t->sources] = (uint8_t)slot;
    int error = look_at(t, place, slot) ? 0 : post_read(t, place, slot);
    if (error < 0)
        return transfer_fail(t, place, error);
    t->sources++;
    t->next_slot++;
    return 0;
}

int pass_read(struct transfer *t, uint32_t places)
{
    struct piece *p = t->piece;
    if (own_input(t) && t->next_rank == 0 && t->sources == 0 && !t->has_partial)
        t->input[t->sources++] = own_input(t);
    while (t->next_rank < places && t->sources < REDUCE_SOURCES_MAX) {
        if (t->next_slot < transfer_inputs(t, t->next_rank)) {
            int error = pass_read_next(t);
            if (error < 0)
                return error;
        } else {
            t->next_slot = 0;
            t->next_rank++;
        }
    }
    t->is_posted = t->next_rank == transfer_places(p) || t->sources == REDUCE_SOURCES_MAX;
    return 0;
}

bool pass_is_last(const struct transfer *t)
{
    /* number of inputs of the member next_rank that are read already */
    uint32_t passed = t->next_slot;
    for (uint32_t i = t->next_rank; i < transfer_places(t->piece); i++) {
        if (transfer_inputs(t, i) > passed)
            return false;
        passed = 0;
    }
    return true;
}

/* ---- reducing ---- */

/* Collects the addresses of the inputs. Returns 0, or -EFAULT if a worker has unmapped
 * memory that it had announced. */
static int collect_sources(struct transfer *t, const void *sources[])
{
    for (uint32_t i = 0; i < t->sources; i++) {
        sources[i] = t->input[i] ? t->input[i] : look_at(t, t->source_rank[i], t->source_slot[i]);
        if (!sources[i])
            return transfer_fail(t, t->source_rank[i], -EFAULT);
    }
    return 0;
}

static void copy(void *const targets[], int count, const void *source, size_t bytes)
{
    for (int i = 0; i < count; i++) {
        if (targets[i] != source)
            memmove(targets[i], source, bytes);
    }
}

static void measure_inputs(const struct transfer *t, const void *const sources[])
{
    struct piece *p = t->piece;
    for (uint32_t i = 0; p->terms.measures && i < t->sources; i++)
        p->input_squares += reduce_squares(p->dtype, sources[i], t->elements);
}

/* Samples the gradients of a round of the job. */
static void sample_pass(const struct transfer *t, const void *const sources[])
{
    const struct piece *p = t->piece;
    if (!p->sampled || p->is_copy || !quorum_follows(p, p->operation))
        return;
    sample_inputs(t, sources);
    if (pass_is_last(t))
        sample_mean(t, sources, t->has_partial ? partial_slot(t) : NULL);
}

/* Returns whether the inputs and results of the job's rounds exceed half of the last-level cache.
 * The workers use the other half (A18). */
static bool is_too_much_for_cache(const struct lane_job *job)
{
    uint64_t cache_bytes = job->lane->options.cache_bytes;
    return cache_bytes > 0 && job->step_bytes > cache_bytes / 2;
}

/* Returns -EFAULT if a page was missing and zeros were reduced in its place. The result is then
 * sent to no worker (A7). */
static int confirm_sources(struct transfer *t)
{
    for (uint32_t i = 0; i < t->sources; i++) {
        const struct worker *w = t->input[i] ? NULL : t->piece->ranks[t->source_rank[i]].worker;
        if (w && !fabric_is_sound(w->conn))
            return transfer_fail(t, t->source_rank[i], -EFAULT);
    }
    return 0;
}

/* Returns whether the gradients have different weights, which a divisor above the number of inputs
 * shows. The test excludes pieces whose rounds use the job's sets: their weights are all 1, but
 * their divisor may be the number of all ranks (A117). */
static bool is_weighted(const struct transfer *t)
{
    return t->divisor > t->piece->sources && !piece_follows(t->piece);
}

static void apply(struct transfer *t, const void *const sources[], void *const targets[], int count,
                  enum reduce_dtype target, uint32_t divisor, bool streams)
{
    const struct piece *p = t->piece;
    bool updates = parameters_step(p) && pass_is_last(t);
    float weights[REDUCE_SOURCES_MAX];
    if (!updates && t->sources == 1 && !t->has_partial && target == p->dtype && divisor < 2)
        return copy(targets, count, sources[0], piece_bytes(p, t->elements));
    for (uint32_t i = 0; is_weighted(t) && i < t->sources; i++)
        weights[i] = (float)p->ranks[t->source_rank[i]].weight;
    const struct reduce_pass pass = {.targets = targets,
                                     .targets_count = count,
                                     .sources = sources,
                                     .sources_count = (int)t->sources,
                                     .partial = t->has_partial ? partial_slot(t) : NULL,
                                     .elements = t->elements,
                                     .divisor = divisor,
                                     .streams = streams && !updates,
                                     .weights = is_weighted(t) ? weights : NULL};
    enum reduce_operation operation = is_weighted(t) ? REDUCE_WEIGHTED : p->operation->reduce;
    if (updates)
        parameters_update(t, &pass);
    else
        reduce_pick(p->job->lane->options.kernels, operation, p->dtype, target)(&pass);
}

static int reduce(struct transfer *t, void *const targets[], int count, enum reduce_dtype target,
                  uint32_t divisor, bool streams)
{
    const void *sources[REDUCE_SOURCES_MAX];
    int error = collect_sources(t, sources);
    if (error < 0)
        return error;
    measure_inputs(t, sources);
    sample_pass(t, sources);
    apply(t, sources, targets, count, target, divisor, streams);
    return confirm_sources(t);
}

int pass_sum_partial(struct transfer *t)
{
    int error = window_open(t->piece->job);
    if (error < 0)
        return transfer_fail(t, t->next_rank, error);
    void *target = partial_slot(t);
    error = reduce(t, &target, 1, reduce_accumulator(t->piece->dtype), 0, false);
    if (error < 0)
        return error;
    t->has_partial = true;
    t->sources = 0;
    return 0;
}

/* ---- storing ---- */

/* Returns the address where the lane stores the result for itself. NULL: the lane stores no result,
 * or the update of the parameters stores the result. */
static void *keep_at(const struct transfer *t)
{
    const struct piece *p = t->piece;
    if (p->parameters)
        return parameters_set_at(t);
    return p->kept ? kept_at(t) : NULL;
}

/* Reads the pages of an output area before they are written. For a read, the kernel maps sixteen
 * shared pages at once; for a write, only one. Without these reads, the first round in new memory
 * would have a page fault for each page. */
static void meet(const void *output, size_t bytes)
{
    const volatile char *at = output;
    for (size_t i = 0; i < bytes; i += MAPPED_AT_ONCE_BYTES)
        (void)at[i];
    if (bytes > 0)
        (void)at[bytes - 1];
}

/* Collects the mapped output areas of one batch. The kernel stores the result directly in these
 * areas. All other output areas receive the result from the result slot. */
static int collect_targets(const struct transfer *t, uint32_t *next, void *targets[], int count,
                           bool *ret_unmapped)
{
    struct piece *p = t->piece;
    for (; *next < p->members && count < REDUCE_TARGETS_MAX; (*next)++) {
        if (!transfer_takes(t, *next) || !p->ranks[*next].worker->conn)
            continue;
        void *output = pass_map_output(t, *next);
        if (output)
            targets[count++] = output;
        else
            *ret_unmapped = true;
    }
    return count;
}

static bool needs_result_slot(const struct transfer *t, int taken)
{
    void *targets[REDUCE_TARGETS_MAX];
    bool unmapped = false;
    uint32_t next = 0;
    (void)collect_targets(t, &next, targets, taken, &unmapped);
    return unmapped || next < t->piece->members;
}

/* Copies the result from its slot to the output areas that did not fit into one batch. */
static void copy_to_rest(struct transfer *t, uint32_t next)
{
    void *targets[REDUCE_TARGETS_MAX];
    bool unmapped = false;
    while (next < t->piece->members) {
        int count = collect_targets(t, &next, targets, 0, &unmapped);
        copy(targets, count, result_slot(t), piece_bytes(t->piece, t->elements));
    }
}

/* Returns whether all weights are 0, so that the round has a mean without gradients. */
static bool pass_is_void(const struct piece *p)
{
    return transfer_divides(p) && p->elements > 0 && p->sources == 0;
}

/* A mean without gradients is 0, and an update without a gradient does not change the state. */
static void pass_store_void(struct transfer *t, void *const targets[], int count)
{
    if (parameters_step(t->piece))
        return parameters_keep(t, targets, count);
    for (int i = 0; i < count; i++)
        memset(targets[i], 0, piece_bytes(t->piece, t->elements));
}

int pass_sum(struct transfer *t)
{
    struct piece *p = t->piece;
    void *targets[REDUCE_TARGETS_MAX], *keep = keep_at(t);
    bool unmapped = false, uses_slot = needs_result_slot(t, keep != NULL);
    uint32_t next = 0;
    int count = 0, r = uses_slot ? window_open(p->job) : 0;
    if (r < 0)
        return transfer_fail(t, 0, r);
    if (uses_slot)
        targets[count++] = result_slot(t);
    if (keep)
        targets[count++] = keep;
    count = collect_targets(t, &next, targets, count, &unmapped);
    if ((count == 0 && !parameters_step(p)) || (t->sources == 0 && !pass_is_void(p)))
        return 0; /* a barrier, or no rank needs the result */
    for (int i = uses_slot + (keep != NULL); i < count; i++)
        meet(targets[i], piece_bytes(p, t->elements));
    bool reads_back = uses_slot || p->terms.measures;
    if (pass_is_void(p))
        pass_store_void(t, targets, count);
    else
        r = reduce(t, targets, count, p->dtype, t->divisor,
                   !reads_back && is_too_much_for_cache(p->job));
    if (r < 0)
        return r;
    if (p->terms.measures && !parameters_step(p))
        p->result_squares += reduce_squares(p->dtype, targets[0], t->elements);
    copy_to_rest(t, next);
    return 0;
}
