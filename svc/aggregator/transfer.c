/* One chunk on its way through the lane: read the inputs (or look at them where they are mapped),
 * sum in rank order, write the results. Every post may say -EAGAIN, so each step can be taken up
 * again. More than REDUCE_SOURCES_MAX inputs are summed in passes, each with the partial result of
 * those before: the bits are those of one pass. Never keeps a pointer into a worker's memory from one turn to the next:
 * the worker may have taken it back. README: A3, A7. */
#include "svc/aggregator/lane_types.h"

#include "svc/base/clock.h"

#include <errno.h>

bool transfer_is_active(const struct lane_job *job)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        if (job->transfers[i].outstanding > 0)
            return true;
    }
    return false;
}

bool transfer_needs(const struct lane_job *job, uint32_t rank)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        const struct transfer *t = &job->transfers[i];
        bool unsummed = t->state == TRANSFER_READING || t->state == TRANSFER_SUMMING;
        if (t->is_broken || (unsummed && t->piece->ranks[rank].is_source))
            return true;
    }
    return false;
}

static char *slot_at(const struct transfer *t, uint32_t index)
{
    return t->slots + index * t->piece->job->slot_bytes;
}
static char *partial_slot(const struct transfer *t) { return slot_at(t, 0); }
static char *input_slot(const struct transfer *t, uint32_t source)
{
    return slot_at(t, source + 1);
}

/* Over the partial result if that is no wider, else over the first input: a kernel allows both,
 * but not to narrow in place (R4 of svc/reduce). */
static char *result_slot(const struct transfer *t)
{
    unsigned dtype = t->piece->dtype;
    return reduce_accumulator(dtype) == dtype ? partial_slot(t) : input_slot(t, 0);
}

static uint64_t bytes_of(const struct piece *p, uint64_t elements)
{
    return elements * reduce_element_bytes(p->dtype);
}

static void *map_output(const struct transfer *t, uint32_t number)
{
    struct piece *p = t->piece;
    const struct announcement *a = rank_said(&p->ranks[number], p->round);
    struct worker *w = &p->job->workers[number];
    if (!w->conn)
        return NULL;
    return fabric_map(w->conn, a->output_region, a->output_offset + bytes_of(p, t->first),
                      bytes_of(p, t->elements));
}

static int fail_transfer(struct transfer *t, uint32_t number, int code)
{
    struct lane_job *job = t->piece->job;
    if (code != -EAGAIN)
        job_fail(job, code, "tensor '%s': cannot reach the memory of rank %u of job '%s' (%s)",
                 t->piece->tensor, number, job->name, err_text(code));
    return code;
}

/* An input that needs no read: inline, or mapped. NULL: it needs one. */
static const void *look_at(const struct transfer *t, uint32_t number)
{
    const struct piece *p = t->piece;
    const struct announcement *a = rank_said(&t->piece->ranks[number], p->round);
    struct worker *w = &p->job->workers[number];
    uint64_t offset = bytes_of(p, t->first);
    if (!w->conn)
        return NULL;
    if (a->payload)
        return (const char *)a->payload + offset;
    return fabric_map(w->conn, a->input_region, a->input_offset + offset, bytes_of(p, t->elements));
}

static int post_read(struct transfer *t, uint32_t number)
{
    struct piece *p = t->piece;
    const struct announcement *a = rank_said(&p->ranks[number], p->round);
    struct worker *w = &p->job->workers[number];
    int r = window_open(p->job);
    if (r < 0)
        return r;
    if (!w->conn)
        return -ECONNRESET;
    char *slot = input_slot(t, t->sources);
    r = fabric_read(w->conn, a->input_region, a->input_offset + bytes_of(p, t->first), slot,
                    bytes_of(p, t->elements), t);
    if (r < 0)
        return r;
    t->source[t->sources] = slot;
    t->outstanding++;
    return 0;
}

/* Posts the reads of a pass. Where all inputs are at hand it is over at once. */
static int post_reads(struct transfer *t)
{
    struct piece *p = t->piece;
    while (t->next_rank < p->job->workers_count && t->sources < REDUCE_SOURCES_MAX) {
        if (p->ranks[t->next_rank].is_source) {
            t->source[t->sources] = NULL;
            t->source_rank[t->sources] = t->next_rank;
            int r = look_at(t, t->next_rank) ? 0 : post_read(t, t->next_rank);
            if (r < 0)
                return fail_transfer(t, t->next_rank, r);
            t->sources++;
        }
        t->next_rank++;
    }
    t->is_posted = true;
    return 0;
}

static bool more_sources(const struct transfer *t)
{
    for (uint32_t i = t->next_rank; i < t->piece->job->workers_count; i++) {
        if (t->piece->ranks[i].is_source)
            return true;
    }
    return false;
}

static reduce_fn kernel(const struct transfer *t, enum reduce_operation operation,
                        enum reduce_dtype target)
{
    const struct piece *p = t->piece;
    return reduce_pick(p->job->lane->options.kernels, operation, p->dtype, target);
}

/* Sums what the pass has gathered. -EFAULT: a worker took memory back that it had announced. */
static int reduce(struct transfer *t, void *const targets[], int count, enum reduce_dtype target,
                  uint32_t divisor)
{
    const struct piece *p = t->piece;
    const void *sources[REDUCE_SOURCES_MAX];
    for (uint32_t i = 0; i < t->sources; i++) {
        sources[i] = t->source[i] ? t->source[i] : look_at(t, t->source_rank[i]);
        if (!sources[i])
            return fail_transfer(t, t->source_rank[i], -EFAULT);
    }
    const struct reduce_pass pass = {.targets = targets,
                                     .targets_count = count,
                                     .sources = sources,
                                     .sources_count = (int)t->sources,
                                     .partial = t->has_partial ? partial_slot(t) : NULL,
                                     .elements = t->elements,
                                     .divisor = divisor};
    kernel(t, p->is_copy ? REDUCE_SUM : p->operation->reduce, target)(&pass);
    return 0;
}

/* More inputs than one pass takes: keep the partial sum, go on reading. */
static int sum_partial(struct transfer *t)
{
    int r = window_open(t->piece->job);
    if (r < 0)
        return fail_transfer(t, t->next_rank, r);
    void *target = partial_slot(t);
    r = reduce(t, &target, 1, reduce_accumulator(t->piece->dtype), 0);
    if (r < 0)
        return r;
    t->has_partial = true;
    t->sources = 0;
    t->state = TRANSFER_READING;
    t->is_posted = false;
    return 0;
}

/* Mapped outputs take the result directly, up to a batch; the result slot takes it for the others.
 */
static int collect_targets(const struct transfer *t, uint32_t *next, void *targets[], int count,
                           bool *ret_unmapped)
{
    struct piece *p = t->piece;
    for (; *next < p->job->workers_count && count < REDUCE_TARGETS_MAX; (*next)++) {
        if (!p->ranks[*next].is_target || !p->job->workers[*next].conn)
            continue;
        void *output = map_output(t, *next);
        if (output)
            targets[count++] = output;
        else
            *ret_unmapped = true;
    }
    return count;
}

static bool needs_result_slot(const struct transfer *t)
{
    void *targets[REDUCE_TARGETS_MAX];
    bool unmapped = false;
    uint32_t next = 0;
    (void)collect_targets(t, &next, targets, 0, &unmapped);
    return unmapped || next < t->piece->job->workers_count;
}

/* Outputs beyond what one pass stores to get the result from its slot. */
static void copy_to_rest(struct transfer *t, uint32_t next)
{
    void *targets[REDUCE_TARGETS_MAX];
    const void *result = result_slot(t);
    bool unmapped = false;
    while (next < t->piece->job->workers_count) {
        int count = collect_targets(t, &next, targets, 0, &unmapped);
        if (count > 0)
            kernel(t, REDUCE_SUM, t->piece->dtype)(&(struct reduce_pass){.targets = targets,
                                                                         .targets_count = count,
                                                                         .sources = &result,
                                                                         .sources_count = 1,
                                                                         .elements = t->elements});
    }
}

/* Inline inputs have been summed: their receives are wanted for the next messages (W6). */
static void release_payloads(struct piece *p)
{
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        if (p->job->workers[i].holding == rank_said(&p->ranks[i], p->round))
            worker_drop_payload(&p->job->workers[i]);
    }
}

/* The last pass: one store to each target while the sum is at hand. */
static int sum_final(struct transfer *t)
{
    struct piece *p = t->piece;
    void *targets[REDUCE_TARGETS_MAX];
    bool uses_slot = needs_result_slot(t), unmapped = false;
    bool divides = !p->is_copy && p->operation->divides;
    uint32_t next = 0;
    int r = uses_slot ? window_open(p->job) : 0;
    if (r < 0)
        return fail_transfer(t, 0, r);
    if (uses_slot)
        targets[0] = result_slot(t);
    int count = collect_targets(t, &next, targets, uses_slot, &unmapped);
    r = count > 0 ? reduce(t, targets, count, p->dtype, divides ? p->sources : 0) : 0;
    if (r < 0)
        return r;
    copy_to_rest(t, next);
    if (t->first + t->elements == p->elements)
        release_payloads(p);
    t->state = TRANSFER_WRITING;
    t->next_rank = 0;
    t->is_posted = false;
    return 0;
}

/* What one rank gets of this chunk: bytes if its output is not mapped, the word with the last one.
 * 1: something was posted, 0: nothing to post. */
static int post_write(struct transfer *t, uint32_t number, bool is_last)
{
    struct piece *p = t->piece;
    struct rank *rank = &p->ranks[number];
    const struct announcement *a = rank_said(rank, p->round);
    struct worker *w = &p->job->workers[number];
    bool has_word = is_last && rank->gets_word;
    if (!w->conn || (!rank->is_target && !has_word))
        return 0;
    bool has_bytes = rank->is_target && !map_output(t, number);
    uint64_t offset = a->output_offset + bytes_of(p, t->first), bytes = bytes_of(p, t->elements);
    int r = 0;
    if (has_bytes && !t->slots)
        return -EFAULT; /* mapped when it was announced, taken back since */
    if (has_bytes && has_word)
        r = fabric_write_word(w->conn, a->output_region, offset, result_slot(t), bytes, a->word, t);
    else if (has_bytes)
        r = fabric_write(w->conn, a->output_region, offset, result_slot(t), bytes, t);
    else if (has_word)
        r = fabric_notify(w->conn, a->word, t);
    else
        return 0;
    return r < 0 ? r : 1;
}

/* A result that did not land must not be committed (W4), except to who said goodbye: its CLOSED
 * event decides what becomes of the job. */
static void note_lost_write(struct transfer *t, const struct worker *w)
{
    t->is_broken |= w->state != WORKER_LEFT;
}

static int post_writes(struct transfer *t)
{
    struct piece *p = t->piece;
    bool is_last = t->first + t->elements == p->elements;
    for (; t->next_rank < p->job->workers_count; t->next_rank++) {
        int r = post_write(t, t->next_rank, is_last);
        if (r == -ECONNRESET) {
            note_lost_write(t, &p->job->workers[t->next_rank]);
            continue;
        }
        if (r < 0)
            return fail_transfer(t, t->next_rank, r);
        t->outstanding += (uint32_t)r;
    }
    t->is_posted = true;
    p->write_element += t->elements;
    return 0;
}

static void finish_if_done(struct transfer *t)
{
    struct piece *p = t->piece;
    if (t->state != TRANSFER_WRITING || !t->is_posted || t->outstanding > 0 || t->is_broken)
        return;
    t->state = TRANSFER_FREE;
    t->piece = NULL;
    p->chunks_active--;
    if (p->state == PIECE_FINISHING && p->chunks_active == 0)
        round_commit(p);
}

/* Takes the transfer as far as it goes now. Returns whether anything was done. */
static bool advance(struct transfer *t)
{
    int r = -EAGAIN;
    if (t->is_broken)
        return false;
    if (t->state == TRANSFER_READING && !t->is_posted)
        r = post_reads(t);
    if (t->state == TRANSFER_READING && t->is_posted && t->outstanding == 0)
        t->state = TRANSFER_SUMMING;
    if (t->state == TRANSFER_SUMMING && more_sources(t))
        return sum_partial(t) == 0;
    if (t->state == TRANSFER_SUMMING && t->first == t->piece->write_element)
        r = sum_final(t);
    if (t->state == TRANSFER_WRITING && !t->is_posted)
        r = post_writes(t);
    if (t->state != TRANSFER_FREE)
        finish_if_done(t);
    return r == 0;
}

static struct transfer *free_transfer(struct lane_job *job)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        if (job->transfers[i].state == TRANSFER_FREE)
            return &job->transfers[i];
    }
    return NULL;
}

/* With a window, a chunk must fit a slot; with passes, its partial result must. */
static uint64_t chunk_elements(const struct piece *p)
{
    uint64_t left = p->elements - p->next_element, chunk = p->chunk_elements;
    bool has_passes = p->job->workers_count > REDUCE_SOURCES_MAX;
    unsigned widest = has_passes ? reduce_accumulator(p->dtype) : p->dtype;
    uint64_t fits = window_slot_bytes(p->job) / reduce_element_bytes(widest);
    if (chunk > fits)
        chunk = fits;
    return left < chunk ? left : chunk;
}

static bool start_chunk(struct lane_job *job)
{
    struct list *node = list_first(&job->runnable);
    struct transfer *t = free_transfer(job);
    if (!node || !t)
        return false;
    struct piece *p = list_entry(node, struct piece, run_link);
    char *slots = t->slots;
    *t = (struct transfer){.state = TRANSFER_READING,
                           .piece = p,
                           .first = p->next_element,
                           .elements = chunk_elements(p),
                           .slots = slots};
    p->next_element += t->elements;
    p->chunks_active++;
    if (p->next_element == p->elements) {
        p->state = PIECE_FINISHING;
        list_remove(&p->run_link);
    }
    (void)advance(t);
    return true;
}

static void abort_all(struct lane_job *job)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        struct transfer *t = &job->transfers[i];
        if (t->outstanding == 0) {
            t->state = TRANSFER_FREE;
            t->piece = NULL;
        }
    }
    list_for_each_safe (node, &job->runnable) {
        list_remove(node);
    }
}

static bool turn(struct lane_job *job)
{
    if (job->failure || job->is_dropped) {
        abort_all(job);
        return false;
    }
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        struct transfer *t = &job->transfers[i];
        if (t->state != TRANSFER_FREE && advance(t))
            return true;
    }
    return start_chunk(job);
}

bool transfer_turn(struct lane_job *job)
{
    uint64_t before_ns = clock_now_ns();
    bool did = turn(job);
    uint64_t spent_ns = clock_now_ns() - before_ns;
    job->busy_ns += spent_ns;
    job->lane->busy_ns += spent_ns;
    return did;
}

void transfer_progress(struct transfer *t, const struct worker *w, int error)
{
    struct lane_job *job = t->piece->job;
    t->outstanding--;
    if (error && t->state == TRANSFER_READING)
        t->is_broken = true;
    else if (error)
        note_lost_write(t, w);
    if (job->failure || job->is_dropped) {
        abort_all(job);
        job_release(job);
        return;
    }
    finish_if_done(t);
    job_wake(job);
}
