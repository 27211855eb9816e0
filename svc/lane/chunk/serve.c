/* Writes the parameters after a round, or the result of a sum, to a late rank, which is a rank
 * outside the round's set. A taker has requested the result of one round, so it gets a completion
 * word behind the last chunk. Any other late rank does not know the round yet, so it gets CLOSED,
 * which names the round, instead of a completion word. Before each chunk for a taker the state is
 * checked again: if a later round has written to the state, the taker gets the number of the newest
 * round instead. While a late rank that is no taker receives a result, no round writes to this
 * result (answers.c). Each worker has at most one posted write. RULES.md: A16, A86, A88, A95. */
#include "svc/lane/chunk/serve.h"

#include "svc/base/err.h"
#include "svc/lane/chunk/transfer.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/kept.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- the results that a lane has ---- */

/* Returns whether the piece stores the result of `round`. The open round overwrites the oldest
 * stored result only after its close, and the leader lane closes the open round only when no rank
 * needs the oldest result any more. */
static bool serve_has_kept(const struct piece *p, uint64_t round)
{
    uint64_t last = round + p->terms.lag;
    bool is_made = p->kept_from > 0 && round >= p->kept_from && round < p->round;
    return is_made && (last > p->round || (last == p->round && p->state == PIECE_COLLECTING));
}

static bool serve_has(const struct serving *s)
{
    const struct piece *p = s->rank->piece;
    uint64_t round = s->round;
    if (s->result)
        return true;
    return p->parameters ? parameters_have(p, round) : serve_has_kept(p, round);
}

static const void *serve_values(const struct serving *s)
{
    const struct piece *p = s->rank->piece;
    if (s->result)
        return s->result + piece_bytes(p, s->next);
    if (p->parameters)
        return parameters_at(p, s->round, s->next);
    return p->kept ? kept_result(p, s->round) + piece_bytes(p, s->next) : NULL;
}

/* Sends CLOSED with `round`. A rank that is no taker, or that has requested this round, has the
 * result in its memory. A taker that has requested another round then requests the result of
 * `round`. */
static void serve_answer(struct serving *s, uint64_t round)
{
    struct rank *rank = s->rank;
    struct announcement *a = rank->late;
    serving_end(s);
    rank->late = NULL;
    rank->piece->late--;
    if (round == a->round || !piece_follows(rank->piece))
        rank->clock = a->round;
    tell_closed(rank->worker, a, round);
    release_note(rank->piece->job); /* a release that waits for this answer may now be possible */
}

/* Returns whether the rank has an array for the result. */
static bool serve_has_array(const struct serving *s)
{
    return s->rank->late->output_region != ANNOUNCEMENT_NO_OUTPUT;
}

/* ---- one chunk ---- */

static uint64_t serve_elements(const struct serving *s)
{
    const struct piece *p = s->rank->piece;
    uint64_t left = p->elements - s->next;
    if (!serve_has_array(s))
        return left;
    uint64_t fits = serving_slot_bytes(p->job) / reduce_element_bytes(p->dtype);
    return left < fits ? left : fits;
}

/* Returns whether a completion word follows the chunk. */
static bool serve_ends_with_word(const struct serving *s) { return s->is_last && !s->result; }

static int serve_post(struct serving *s, const void *values, uint64_t at, size_t bytes)
{
    const struct announcement *a = s->rank->late;
    struct fabric_conn *conn = s->rank->worker->conn;
    if (!s->slot)
        /* the memory was mapped at the time of the announcement and unmapped later, so the worker
         * has no slot */
        return -EFAULT;
    memcpy(s->slot, values, bytes);
    return serve_ends_with_word(s)
               ? fabric_write_word(conn, a->output_region, at, s->slot, bytes, a->word, s)
               : fabric_write(conn, a->output_region, at, s->slot, bytes, s);
}

/* Writes the chunk. A completion word follows the last chunk of a taker. Returns 0 if a completion
 * event will follow, 1 if no event will follow, or a negative errno. */
static int serve_write(struct serving *s, uint64_t elements)
{
    const struct rank *rank = s->rank;
    const struct announcement *a = rank->late;
    struct fabric_conn *conn = rank->worker->conn;
    const void *values = serve_values(s);
    uint64_t at = a->output_offset + piece_bytes(rank->piece, s->next);
    size_t bytes = serve_has_array(s) ? piece_bytes(rank->piece, elements) : 0;
    void *mapped = bytes > 0 ? fabric_map(conn, a->output_region, at, bytes) : NULL;
    if (bytes > 0 && !mapped)
        return serve_post(s, values, at, bytes);
    if (bytes > 0)
        memcpy(mapped, values, bytes);
    return serve_ends_with_word(s) ? fabric_notify(conn, a->word, s) : 1;
}

/* The set is sent with the result, because every rank with a result must know its set (W13). */
static int serve_set(const struct serving *s)
{
    const struct piece *p = s->rank->piece;
    bool has_set = s->is_last && p->terms.quorum == QUORUM_CHOSEN;
    return has_set ? tell_set_now(s->rank->worker, quorum_job_round(p, s->round)) : 0;
}

/* Handles an error of a write. After -EAGAIN the lane writes again on the connection's ROOM event.
 * After a lost connection the CLOSED event follows. Any other error fails the job. */
static void serve_fail(struct serving *s, int code)
{
    struct worker *w = s->rank->worker;
    bool is_lost = code == -ECONNRESET || !fabric_is_sound(w->conn);
    s->is_last = false;
    if (code == -EAGAIN || is_lost)
        return;
    job_fail(w->job, code, "tensor '%s': no access to the memory of rank %u of job '%s' (%s)",
             s->rank->piece->tensor, w->number, w->job->name,
             code == -EFAULT ? "freed, or its pages are gone" : err_text(code));
}

static uint32_t serve_chunk(struct serving *s)
{
    struct piece *p = s->rank->piece;
    uint64_t elements = serve_elements(s);
    s->is_last = s->next + elements == p->elements;
    int r = serve_set(s);
    if (r == 0)
        r = serve_write(s, elements);
    if (r < 0) {
        serve_fail(s, r);
        return 0;
    }
    s->next += elements;
    s->moved_ns = p->job->lane->now_ns;
    if (r == 0) {
        s->is_posted = true;
        s->piece = p;
    } else if (s->is_last) {
        serve_answer(s, s->round);
    }
    return TRANSFER_SHARE;
}

/* ---- one worker ---- */

/* Begins the answer to a rank, with the result that the rank has requested, or with the newest
 * result. If the lane has no result now, the answer is queued again when the round in progress has
 * ended. A released piece is served again after a thaw, or by its new owner. */
static void serve_begin(struct serving *s, struct rank *rank)
{
    struct piece *p = rank->piece;
    bool follows = piece_follows(p);
    const char *result = follows ? NULL : kept_newest(p);
    if (p->is_held || (!follows && !result))
        return;
    s->rank = rank;
    s->result = result;
    s->round = follows ? rank->late->round : p->round - 1;
    s->moved_ns = p->job->lane->now_ns;
}

/* Finds the next rank whose result can be written. */
static bool serve_find(struct serving *s, const struct worker *w)
{
    struct list *node;
    if (s->rank && s->rank->piece->is_held)
        serving_forget(s->rank);
    while (!s->rank && (node = list_first(&s->takes))) {
        struct announcement *a = list_entry(node, struct announcement, tell_link);
        struct rank *rank = piece_rank(announcement_piece(a), w->number);
        list_remove(node);
        if (rank->late == a)
            serve_begin(s, rank);
    }
    return s->rank;
}

/* Fails the job, because a rank has requested a result that a later round has overwritten. A
 * correct rank never does: the leader lane closes no round while a rank lacks the result that the
 * round overwrites. */
static void serve_fail_overwritten(const struct serving *s)
{
    const struct piece *p = s->rank->piece;
    uint64_t round = s->rank->late->round;
    job_fail(p->job, -EOWNERDEAD,
             "tensor '%s': rank %u lacks the result of round %" PRIu64
             ", overwritten by round %" PRIu64
             " (lag %u); start job '%s' again from a checkpoint, with a larger lag",
             p->tensor, s->rank->worker->number, round, round + p->terms.lag, p->terms.lag,
             p->job->name);
}

/* Fails the job, because the lane does not have the requested sum. A rank without this sum would
 * have other parameters than the other ranks. */
static void serve_fail_lost(const struct serving *s)
{
    const struct piece *p = s->rank->piece;
    uint64_t round = s->rank->late->round;
    bool was_here = p->kept_from > 0 && round >= p->kept_from;
    if (was_here || round + p->terms.lag < p->round)
        return serve_fail_overwritten(s);
    job_fail(p->job, -EOWNERDEAD,
             "tensor '%s': rank %u of job '%s' lacks the result of round %" PRIu64
             ", which died with its lane; start the job again from a checkpoint",
             p->tensor, s->rank->worker->number, p->job->name, round);
}

static uint32_t serve_step(struct serving *s, const struct worker *w)
{
    if (!w->conn || !serve_find(s, w))
        return 0;
    const struct piece *p = s->rank->piece;
    if (serve_has(s))
        return serve_chunk(s);
    if (p->terms.lag > 0)
        serve_fail_lost(s);
    else
        serve_answer(s, p->round - 1);
    return 1;
}

uint32_t serve_turn(struct lane_job *job)
{
    struct servings *v = job->servings;
    uint32_t share = 0;
    if (!v || job->failure || job->is_dropped)
        return 0;
    struct list *last = v->ready.previous;
    bool is_last = list_is_empty(&v->ready);
    while (!is_last && share == 0 && !job->failure) {
        struct serving *s = list_entry(list_first(&v->ready), struct serving, ready);
        const struct worker *w = &job->workers[s - v->of];
        is_last = &s->ready == last;
        list_remove(&s->ready);
        share = serve_step(s, w);
        (void)serving_list(s, w);
    }
    return share;
}

bool serve_is_next(struct lane_job *job)
{
    struct servings *v = job->servings;
    if (!v)
        return false;
    v->is_next = !v->is_next;
    return v->is_next;
}

/* ---- completions ---- */

void serve_progress(struct worker *w, int error)
{
    struct serving *s = &w->job->servings->of[w->number];
    struct piece *p = s->piece;
    s->is_posted = false;
    s->piece = NULL;
    s->moved_ns = w->job->lane->now_ns;
    if (error == 0 && s->rank && s->is_last)
        serve_answer(s, s->round);
    else if (error != 0)
        serving_end(s); /* the rank lacks the chunk, so its answer begins again */
    (void)serving_list(s, w);
    if (p && piece_is_frozen(p))
        release_tell(w->job->lane);
    job_wake(w->job);
}
