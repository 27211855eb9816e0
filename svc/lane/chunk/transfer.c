/* One chunk in progress. Its inputs are read, reduced and stored in passes (pass.c). Results for
 * memory that is not mapped are written with the fabric. Every post may return -EAGAIN, so each
 * step can be repeated. This file owns the state of a transfer. Other files decide what a round
 * computes. RULES.md: A1, A3, A21. */
#include "svc/lane/chunk/transfer.h"

#include "svc/base/clock.h"
#include "svc/lane/chunk/pass.h"
#include "svc/lane/chunk/serve.h"
#include "svc/lane/chunk/stuck.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/job/tell.h"
#include "svc/lane/piece/piece.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/state/replica.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/window.h"
#include "svc/lane/worker/worker.h"

#include <errno.h>

/* Length of a chunk in mapped memory. Jobs take turns in units of this length. */
#define MAPPED_CHUNK_BYTES ((256u << 10) / TRANSFER_SHORTER)
/* Length of a chunk of a sum over many ranks: the total length of all inputs and outputs. Each of
 * them has at least one page. */
#define WIDE_CHUNK_BYTES ((2u << 20) / TRANSFER_SHORTER)
#define CHUNK_BYTES_LEAST (4u << 10)

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
        const struct rank *of = t->piece ? piece_rank(t->piece, rank) : NULL;
        /* an aborted round begins again, so its chunks need no repair */
        bool is_lost = t->is_broken && !t->is_given_up;
        if (is_lost || (unsummed && of && of->inputs > 0))
            return true;
    }
    return false;
}

bool transfer_is_stuck(const struct piece *p)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        const struct transfer *t = &p->job->transfers[i];
        if (t->piece == p && t->is_broken && !t->is_given_up)
            return true;
    }
    return false;
}

/* Stores an error of a replica holder in the transfer and ends the connection, unless the error is
 * -EAGAIN. The CLOSED event of the connection decides how the round continues. Returns `code`. */
static int fail_holder(struct transfer *t, struct worker *holder, int code)
{
    t->is_broken |= code != -EAGAIN;
    if (t->is_broken && holder->conn)
        fabric_disconnect(holder->conn);
    return code;
}

int transfer_fail(struct transfer *t, uint32_t place, int code)
{
    struct lane_job *job = t->piece->job;
    struct worker *w = t->piece->ranks[place].worker;
    bool is_lost = code == -ECONNRESET || !w->conn || !fabric_is_sound(w->conn);
    if (worker_is_holder(w))
        return fail_holder(t, w, code);
    if (code != -EAGAIN && is_lost && (job->is_elastic || worker_may_return(w)))
        t->is_broken = true;
    else if (code != -EAGAIN)
        job_fail(job, code, "tensor '%s': no access to the memory of rank %u of job '%s' (%s)",
                 t->piece->tensor, w->number, job->name,
                 code == -EFAULT ? "freed, or its pages are gone" : err_text(code));
    return code;
}

/* Frees the inbox memory of inputs that have been summed, so that later inputs can use it (W6). */
static void release_payloads(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].part)
            announcement_drop_payload(p->ranks[i].worker, p->ranks[i].part);
    }
}

static int fail_copy(struct transfer *t, int code)
{
    struct worker *holder = t->piece->parameters->replica.worker;
    if (worker_is_holder(holder))
        return fail_holder(t, holder, code);
    return transfer_fail(t, (uint32_t)(piece_rank(t->piece, holder->number) - t->piece->ranks),
                         code);
}

static int store_copy(struct transfer *t)
{
    int error = replica_store(t);
    return error < 0 ? fail_copy(t, error) : 0;
}

/* Reduces the inputs of this pass. If the chunk has further inputs, the next pass begins. */
static int sum(struct transfer *t)
{
    bool is_complete = pass_is_last(t);
    int error = is_complete ? pass_sum(t) : pass_sum_partial(t);
    if (error == 0 && is_complete)
        error = store_copy(t);
    if (error < 0)
        return error;
    trace_step(t->piece->job->trace, t->piece->traced.at_ns, TRACE_SUMMED);
    t->state = is_complete ? TRANSFER_WRITING : TRANSFER_READING;
    t->is_posted = false;
    if (is_complete)
        t->next_rank = 0;
    if (is_complete && t->is_last)
        release_payloads(t->piece);
    return 0;
}

static bool has_passes(const struct piece *p)
{
    return p->members * p->job->sampling->gradients >= REDUCE_SOURCES_MAX;
}

/* Returns the bytes of an element in a slot. With several passes a slot contains elements of the
 * partial result, which may be wider than those of the inputs. */
static size_t slot_element_bytes(const struct piece *p)
{
    return reduce_element_bytes(has_passes(p) ? reduce_accumulator(p->dtype) : p->dtype);
}

/* Returns the number of inputs plus the number of outputs of a chunk in the next step. */
static uint32_t sides(const struct piece *p)
{
    bool has_steps = p->steps > 1 && p->operation;
    bool has_one_input =
        has_steps && operation_source(p->operation, p->members, p->step) != OPERATION_EVERYBODY;
    bool has_one_output =
        has_steps && operation_target(p->operation, p->members, p->step) != OPERATION_EVERYBODY;
    uint32_t inputs = p->sources > p->members ? p->sources : p->members;
    return (has_one_input ? 1 : inputs) + (has_one_output ? 1 : p->members);
}

/* Returns the maximum bytes of one input of a chunk. This maximum limits the time of a chunk with
 * many ranks. */
static uint64_t most_bytes(const struct piece *p)
{
    if (!has_passes(p))
        return UINT64_MAX;
    uint64_t bytes = WIDE_CHUNK_BYTES / sides(p);
    bytes -= bytes % CHUNK_BYTES_LEAST;
    return bytes < CHUNK_BYTES_LEAST ? CHUNK_BYTES_LEAST : bytes;
}

/* Returns the number of elements of the next chunk. With a window, a chunk has at most as many
 * elements as a slot. */
static uint64_t chunk_elements(const struct piece *p)
{
    uint64_t left = p->elements - p->next_element;
    uint64_t fits = window_slot_bytes(p->job) / slot_element_bytes(p);
    uint64_t chunk = p->job->window ? fits : MAPPED_CHUNK_BYTES / reduce_element_bytes(p->dtype);
    uint64_t most = most_bytes(p) / reduce_element_bytes(p->dtype);
    if (chunk > fits)
        chunk = fits;
    if (chunk > most)
        chunk = most;
    return left < chunk ? left : chunk;
}

/* Returns a free transfer, or NULL. Of all slots that are long enough, the slots of this transfer
 * are the shortest. */
static struct transfer *free_transfer(struct lane_job *job, uint64_t slot_bytes)
{
    for (int i = TRANSFERS_PER_JOB - 1; i >= 0; i--) {
        struct transfer *t = &job->transfers[i];
        if (t->state == TRANSFER_FREE && t->slot_bytes > 0 && t->slot_bytes >= slot_bytes)
            return t;
    }
    return NULL;
}

/* Returns whether the posted reads have the length of one long chunk. This length is the maximum
 * for reads that are posted at the same time. The reads of the next chunk are posted with the
 * results of this chunk (post_place()), so its inputs are summed while they are in the cache. */
static bool reads_enough(const struct lane_job *job)
{
    uint64_t bytes = 0;
    for (int i = 0; i < LARGE_TRANSFERS; i++) {
        const struct transfer *t = &job->transfers[i];
        bool is_one = t->source != OPERATION_EVERYBODY;
        if (t->state == TRANSFER_READING || t->state == TRANSFER_SUMMING)
            bytes += piece_bytes(t->piece, t->elements) * (is_one ? 1 : t->piece->members);
    }
    return bytes >= window_slot_bytes(job) * job->workers_count;
}

/* Returns the chunk's share of a turn, in proportion to its bytes. A turn thus has many small
 * chunks, and each worker is woken only once for all of their results. A chunk with several passes
 * counts once for each pass. */
static uint32_t share_of(const struct piece *p, uint64_t elements)
{
    uint64_t share = piece_bytes(p, elements) * TRANSFER_SHARE / MAPPED_CHUNK_BYTES;
    if (has_passes(p))
        share = piece_bytes(p, elements) * REDUCE_SOURCES_MAX * TRANSFER_SHARE / WIDE_CHUNK_BYTES;
    return share < 1 ? 1 : share > TRANSFER_SHARE ? TRANSFER_SHARE : (uint32_t)share;
}

/* Returns the sum of the weights, or the number of all ranks, if the rate is proportional. 0: the
 * round has no division. */
static uint32_t divisor_of(const struct piece *p)
{
    uint32_t sum = 0;
    if (p->job->is_scaled && quorum_follows(p, p->operation) && transfer_divides(p))
        return p->members;
    for (uint32_t i = 0; i < p->members && transfer_divides(p); i++)
        sum += p->ranks[i].weight * p->ranks[i].inputs;
    return sum;
}

/* Returns the next chunk of the piece. After the last chunk of a step, the first chunk of the next
 * step follows. */
static struct transfer next_chunk(struct piece *p, const struct transfer *slots_of)
{
    struct transfer t = {.state = TRANSFER_READING,
                         .piece = p,
                         .first = p->next_element,
                         .elements = chunk_elements(p),
                         .number = p->next_chunk++,
                         .source = OPERATION_EVERYBODY,
                         .target = OPERATION_EVERYBODY,
                         .divisor = divisor_of(p),
                         .slots = slots_of->slots,
                         .slot_bytes = slots_of->slot_bytes};
    if (t.number == 0) {
        trace_step(p->job->trace, p->traced.at_ns, TRACE_STARTED);
        account_started(p);
    }
    t.share = share_of(p, t.elements);
    if (p->parameters)
        t.array = p->step;
    if (p->steps > 1 && p->operation) {
        t.source = operation_source(p->operation, p->members, p->step);
        t.target = operation_target(p->operation, p->members, p->step);
    }
    p->next_element += t.elements;
    p->job->due_bytes -= piece_bytes(p, t.elements);
    if (p->next_element == p->elements) {
        p->next_element = 0;
        p->step++;
    }
    t.is_last = p->step == p->steps;
    return t;
}

/* Assigns the job's next chunk to a free transfer, and posts nothing. Returns NULL if no chunk can
 * start. */
static struct transfer *take_chunk(struct lane_job *job)
{
    struct list *node = list_first(&job->runnable);
    if (!node)
        return NULL;
    struct piece *p = list_entry(node, struct piece, run_link);
    struct transfer *t = free_transfer(job, chunk_elements(p) * slot_element_bytes(p));
    if (!t || (t < &job->transfers[LARGE_TRANSFERS] && reads_enough(job)))
        return NULL;
    *t = next_chunk(p, t);
    p->chunks_active++;
    if (t->is_last) {
        p->state = PIECE_FINISHING;
        list_remove(&p->run_link);
    }
    return t;
}

static int count_notified(int r) { return r < 0 ? r : r == 0; }

/* Posts the chunk's result for one rank: the bytes, unless the output area is mapped, and the
 * completion word with the last chunk. Returns the number of WRITTEN events that will follow, or an
 * error. */
static int post_write(struct transfer *t, uint32_t place)
{
    struct piece *p = t->piece;
    struct rank *rank = &p->ranks[place];
    const struct announcement *a = rank->part;
    struct fabric_conn *conn = rank->worker->conn;
    bool has_word = t->is_last && rank->gets_word, is_target = transfer_takes(t, place);
    if (!conn || (!is_target && !has_word))
        return 0;
    bool has_bytes = is_target && !pass_map_output(t, place);
    int error = 0;
    if (has_bytes && !t->slots)
        /* the memory was mapped when it was announced and unmapped later, so the job has no
         * slots */
        return -EFAULT;
    const void *result = has_bytes ? pass_result(t) : NULL;
    uint64_t offset = has_bytes ? pass_output_offset(t, place) : 0;
    uint64_t bytes = piece_bytes(p, t->elements);
    if (has_bytes && has_word)
        error = fabric_write_word(conn, a->output_region, offset, result, bytes, a->word, t);
    else if (has_bytes)
        error = fabric_write(conn, a->output_region, offset, result, bytes, t);
    else if (has_word)
        return count_notified(fabric_notify(conn, a->word, t));
    else
        return 0;
    return error < 0 ? error : 1;
}

/* Prevents the commit of a result that was not written (W4). If the rank has left with a goodbye,
 * the round may complete without this write, and the CLOSED event of the connection decides about
 * the job. */
static void note_lost_write(struct transfer *t, const struct worker *w)
{
    t->is_broken |= w->state != WORKER_LEFT;
}

/* Posts the result for one rank, then the read of this rank's input for the next chunk. One wake-up
 * of the worker serves both. */
static int post_place(struct transfer *t, struct transfer *next)
{
    struct piece *p = t->piece;
    int error = post_write(t, t->next_rank);
    if (error == -ECONNRESET) {
        note_lost_write(t, p->ranks[t->next_rank].worker);
        error = 0;
    }
    if (error < 0)
        return transfer_fail(t, t->next_rank, error);
    t->outstanding += (uint32_t)error;
    if (error > 0)
        stuck_posted(p->ranks[t->next_rank].worker, 1);
    t->next_rank++;
    if (!next || next->piece->members < t->next_rank)
        return 0;
    error = pass_read(next, t->next_rank);
    return error == -EAGAIN ? 0 : error; /* the step of `next` posts the other reads */
}

/* Posts the copy of the state before the completion words. Therefore, when a rank has the result,
 * the copy has the state of this round. */
static int post_copy(struct transfer *t)
{
    uint32_t posted;
    int error = replica_post(t, &posted);
    t->outstanding += posted;
    if (posted > 0)
        stuck_posted(t->piece->parameters->replica.worker, posted);
    if (error == -ECONNRESET) {
        note_lost_write(t, t->piece->parameters->replica.worker);
        error = 0;
    }
    return error < 0 ? fail_copy(t, error) : 0;
}

/* Sends the set of the round before the completion words. Each rank with a result therefore knows
 * the set, and can forward the set to a new leader lane (W13). */
static int post_sets(struct transfer *t)
{
    struct piece *p = t->piece;
    if (p->terms.quorum != QUORUM_CHOSEN || !t->is_last || t->next_rank > 0)
        return 0;
    uint64_t number = quorum_job_round(p, p->round);
    for (uint32_t i = 0; i < p->members; i++) {
        struct worker *w = p->ranks[i].worker;
        int error = w->conn && p->ranks[i].gets_word ? tell_set_now(w, number) : 0;
        /* -ECONNRESET is no failure here: the write of the completion word returns this error,
         * too */
        if (error < 0 && error != -ECONNRESET)
            return transfer_fail(t, i, error);
    }
    return 0;
}

static int post_writes(struct transfer *t)
{
    struct piece *p = t->piece;
    int error = post_copy(t) ?: post_sets(t);
    if (error < 0)
        return error;
    struct transfer *next = t->next_rank == 0 ? take_chunk(p->job) : NULL;
    while (t->next_rank < p->members) {
        error = post_place(t, next);
        if (error < 0)
            return error;
    }
    t->is_posted = true;
    p->write_chunk++;
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
    if (p->chunks_active == 0)
        p->job->lane->chunks_are_over(p, false);
}

/* Continues the transfer until an operation has to be waited for. Returns whether any work was
 * done. */
static bool advance(struct transfer *t)
{
    int error = -EAGAIN;
    if (t->is_broken)
        return false;
    t->piece->job->worked = t->piece;
    if (t->state == TRANSFER_READING && !t->is_posted)
        error = pass_read(t, transfer_places(t->piece));
    if (t->state == TRANSFER_READING && t->is_posted && t->outstanding == 0)
        t->state = TRANSFER_SUMMING;
    if (t->state == TRANSFER_SUMMING && !pass_is_last(t))
        return sum(t) == 0;
    if (t->state == TRANSFER_SUMMING && t->number == t->piece->write_chunk)
        error = sum(t);
    if (t->state == TRANSFER_WRITING && !t->is_posted)
        error = post_writes(t);
    if (t->state != TRANSFER_FREE)
        finish_if_done(t);
    return error == 0;
}

static struct transfer *start_chunk(struct lane_job *job)
{
    struct transfer *t = take_chunk(job);
    if (t)
        (void)advance(t);
    return t;
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
    job->due_bytes = 0;
}

/* Runs one step of one transfer and returns this transfer, or NULL if no step is possible. */
static struct transfer *step(struct lane_job *job)
{
    if (job->failure || job->is_dropped) {
        abort_all(job);
        return NULL;
    }
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        struct transfer *t = &job->transfers[i];
        if (t->state != TRANSFER_FREE && advance(t))
            return t;
    }
    return start_chunk(job);
}

/* Alternates between chunks of rounds and chunks for late ranks. */
static uint32_t step_or_serve(struct lane_job *job)
{
    uint32_t share = serve_is_next(job) ? serve_turn(job) : 0;
    const struct transfer *t = share == 0 ? step(job) : NULL;
    if (t)
        return t->share;
    return share > 0 ? share : serve_turn(job);
}

uint32_t transfer_turn(struct lane_job *job)
{
    job->turn_since_ns = clock_now_ns();
    uint32_t share = step_or_serve(job);
    uint64_t spent_ns = clock_now_ns() - job->turn_since_ns;
    job->turn_since_ns = 0;
    account_bill(job, spent_ns);
    return share;
}

static void free_given_up(struct transfer *t)
{
    struct piece *p = t->piece;
    if (t->outstanding > 0)
        return;
    t->state = TRANSFER_FREE;
    t->piece = NULL;
    t->is_given_up = t->is_broken = false;
    p->chunks_active--;
}

void transfer_give_up(struct piece *p)
{
    struct lane_job *job = p->job;
    piece_unqueue(p);
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        struct transfer *t = &job->transfers[i];
        if (t->piece != p)
            continue;
        t->is_broken = t->is_given_up = true;
        free_given_up(t);
    }
}

/* Frees the transfer of an aborted round after its last operation. After the last transfer of the
 * round, round.c ends the round. */
static void progress_given_up(struct transfer *t)
{
    struct piece *p = t->piece;
    struct lane_job *job = p->job;
    free_given_up(t);
    if (p->chunks_active == 0)
        job->lane->chunks_are_over(p, true);
    job_wake(job);
}

void transfer_progress(struct transfer *t, struct worker *w, int error)
{
    struct lane_job *job = t->piece->job;
    stuck_done(w);
    t->outstanding--;
    if (t->is_given_up && !job->failure && !job->is_dropped) {
        progress_given_up(t);
        return;
    }
    if (error && t->state == TRANSFER_READING)
        t->is_broken = true;
    else if (error)
        note_lost_write(t, w);
    if (job->failure || job->is_dropped) {
        abort_all(job);
        return;
    }
    finish_if_done(t);
    job_wake(job);
}
