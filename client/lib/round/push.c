/* Owns staging areas and the beginning of rounds. A push allocates memory only at the first use of
 * a staging area or copy (L5). */
#include "client/lib/round/push.h"

#include "client/lib/job/request.h"
#include "client/lib/job/state_copy.h"
#include "client/lib/link/copy.h"
#include "client/lib/link/link.h"
#include "client/lib/round/gradients.h"
#include "client/lib/session/process.h"
#include "svc/base/system/shortage.h"

#include <inttypes.h>

/* Inputs and results above this length have one staging area, so the next round waits for COMMIT
 * (L17). */
#define OVERLAP_BYTES_MAX (64u << 10)
#define LINE_BYTES 64

/* ---- staging areas ---- */

/* Finds the place of a push in a staging area, and allocates the area at its first use. A short
 * area has two halves; each round uses the half that the round before did not use (L17). */
static int stage(struct gp_tensor *t, void **areas, uint64_t bytes, bool second_half,
                 struct slab_place *ret_place)
{
    struct slabs *slabs = &t->job->slabs;
    void **area = &areas[bytes > t->bytes];
    uint64_t half_bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    bool is_short = bytes <= OVERLAP_BYTES_MAX, is_new = !*area;
    uint64_t area_bytes = is_short ? 2 * half_bytes : bytes, slots = gradients_staging(t);
    bool has_slots = areas == t->staging_input && bytes <= t->bytes && slots > 0;
    area_bytes = has_slots ? slots : area_bytes;
    char lack[SHORTAGE_BYTES];
    int error = is_new ? slabs_alloc(slabs, area_bytes, area) : 0;
    if (error < 0)
        return client_error(
            error, "tensor '%s': no room for %" PRIu64 " bytes of staging memory: %s", t->name,
            bytes, shortage_text(error, SHORTAGE_OTHER, lack, sizeof lack));
    t->staged_bytes += is_new ? area_bytes : 0;
    t->job->staged_bytes += is_new ? area_bytes : 0;
    bool skips_half = is_short && second_half && !has_slots;
    slabs_find(slabs, (char *)*area + (skips_half ? half_bytes : 0), bytes, ret_place);
    return 0;
}

static bool overlaps(const struct push *push)
{
    uintptr_t in = (uintptr_t)push->gradient, out = (uintptr_t)push->result;
    return push->gradient && push->result && in < out + push->result_bytes &&
           out < in + push->gradient_bytes;
}

static bool is_short(const struct push *push)
{
    return push->gradient_bytes <= OVERLAP_BYTES_MAX && push->result_bytes <= OVERLAP_BYTES_MAX;
}

/* Returns whether a round may begin before the last one is committed. Rounds of a tensor whose
 * state has copies may not overlap: after the loss of a lane the successor continues from the copy
 * of a rank that has not received COMMIT, and a further round would overwrite this copy (W17). */
static bool may_overlap(const struct gp_tensor *t)
{
    bool has_copies = t->job->has_copies && t->terms.rule;
    return t->pieces_count == 1 && t->terms.quorum == QUORUM_ALL && !has_copies;
}

/* Returns whether memory of the caller may be lent. Values of another dtype than on the wire must
 * be converted; over a network a short copy costs less than the wait for COMMIT. */
static bool may_lend(const struct gp_tensor *t, const struct push *push)
{
    bool is_better_copied = t->pieces[0].link->is_ofi && may_overlap(t) && is_short(push);
    return t->values == t->dtype && !is_better_copied;
}

/* Lends the caller's memory in place if a slab contains this memory, with two exceptions. A
 * result that overlaps its own input is copied, because a repeated round reads the input again.
 * If a round may have several gradients, input and result are copied, because the caller computes
 * the next gradient while lanes write the result (L120). */
int push_place(struct gp_tensor *t, struct push *push)
{
    const struct slabs *slabs = &t->job->slabs;
    bool has_slots = gradients_have_slots(t, push->operation);
    bool lends = !has_slots && may_lend(t, push);
    bool lends_input = lends && push->gradient &&
                       slabs_find(slabs, push->gradient, push->gradient_bytes, &push->input);
    bool lends_result = lends && push->result &&
                        slabs_find(slabs, push->result, push->result_bytes, &push->landing) &&
                        !overlaps(push);
    push->copies_in = push->gradient && !lends_input;
    push->copies_out = push->result && !lends_result;
    push->ends_committed = lends_input || lends_result;
    push->uses_second_half = !t->open.uses_second_half;
    int error = t->terms.rule ? copy_prepare(t) : 0;
    if (error == 0 && push->copies_in)
        error =
            stage(t, t->staging_input, push->gradient_bytes, push->uses_second_half, &push->input);
    if (error == 0 && push->copies_out)
        error = stage(t, t->staging_landing, push->result_bytes, push->uses_second_half,
                      &push->landing);
    return error;
}

/* ---- begin ---- */

/* The next round of a short tensor need not wait for COMMIT if the last result has landed in
 * staging memory, because the next round uses the other half (L17). */
bool push_may_begin(const struct gp_tensor *t)
{
    if (t->entering > 0)
        return false;
    bool is_ours = t->without_result == 0 && !t->open.ends_committed;
    return t->without_commit == 0 || (may_overlap(t) && is_short(&t->open) && is_ours);
}

/* Moves the open round, which waits for its COMMIT, to `kept` before the next round begins. */
static void keep_open_round(struct gp_tensor *t)
{
    t->kept = t->open;
    t->has_kept = true;
    t->pieces[0].kept_word = t->pieces[0].word;
}

/* Counts the update of the round that begins. */
static void count_step(struct gp_tensor *t)
{
    uint64_t before = t->steps[(t->round + 2) % 3], *now = &t->steps[t->round % 3];
    bool is_set = t->open.operation == RECORD_BROADCAST || t->open.operation == RECORD_RESTORE;
    bool sets = is_set && !t->open.counts_on;
    *now = sets ? t->open.steps : before + (t->open.operation == RECORD_UPDATE);
    t->knows_steps |= sets;
}

static void push_begin(struct gp_tensor *t)
{
    trace_step(t->job->trace, t->next.traced_ns, TRACE_ANNOUNCED);
    if (t->without_commit > 0)
        keep_open_round(t);
    t->open = t->next;
    t->open_request = t->request;
    t->round++;
    progress_note_round(&t->job->progress, t->open.gradient_bytes);
    count_step(t);
    t->without_result = t->without_commit = t->pieces_count;
    for_each_piece (p, t) {
        piece_new_word(p);
        p->standing = PIECE_ANNOUNCED;
        link_announce(p->link, p);
    }
}

/* Copies the input of `next` to staging memory, unless its weight is 0: no lane reads such a
 * gradient. */
static void copy_in(struct gp_tensor *t)
{
    const struct push *push = &t->next;
    const struct copy_dtypes dtypes = {t->values, t->dtype};
    size_t streams_from = copy_streams_from(t->job->staged_bytes), bytes = push->gradient_bytes;
    void *input = slabs_at(&t->job->slabs, push->input);
    if (!push->copies_in || push->weight == 0)
        return;
    copy_to_wire(input, push->gradient, bytes, dtypes, streams_from);
    /* The root of a broadcast gets the rounded values, too, so all ranks have the same bits. */
    if (push->operation == RECORD_BROADCAST && t->values != t->dtype)
        copy_from_wire((void *)push->gradient, input, bytes, dtypes, streams_from);
}

static void push_end_queue(struct gp_tensor *t)
{
    t->is_queued = false;
    t->job->queued--;
}

void push_begin_queued(struct gp_tensor *t)
{
    if (t->request->err.code) {
        push_end_queue(t); /* the request has failed, so its queued round does not begin */
        hold_check(t->job);
        return;
    }
    if (hold_stops(t))
        return;
    push_end_queue(t);
    trace_step(t->job->trace, t->next.traced_ns, TRACE_BEGUN);
    copy_in(t);
    push_begin(t);
}

void push_begin_held(struct gp_job *job)
{
    for_each_tensor (t, job) {
        if (t->is_queued && push_may_begin(t))
            push_begin_queued(t);
    }
}

void push_start(struct gp_tensor *t)
{
    struct gp_job *job = t->job;
    bool is_long = t->next.copies_in && t->next.gradient_bytes > COPY_LOCKED_BYTES;
    trace_step(job->trace, t->next.traced_ns, TRACE_BEGUN);
    if (is_long)
        pthread_mutex_unlock(&job->lock);
    copy_in(t);
    if (is_long)
        pthread_mutex_lock(&job->lock);
    t->is_starting = false;
    if (!t->request->err.code)
        push_begin(t);
}
