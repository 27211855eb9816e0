/* What happens when a worker says READY or asks whom it waits for. Checks every field against what
 * the coordinator said the piece is; a mismatch becomes an error on every rank. README: A1, A4. */
#include "svc/aggregator/lane_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static bool extent_is_lent(struct worker *w, uint32_t region, uint64_t offset, uint64_t bytes)
{
    uint64_t lent = fabric_region_bytes(w->conn, region);
    return bytes == 0 || (offset <= lent && bytes <= lent - offset);
}

static uint64_t input_bytes_expected(const struct worker *w, const struct piece *p,
                                     const struct operation *operation,
                                     const struct record_ready *ready)
{
    uint64_t bytes = p->elements * reduce_element_bytes(p->dtype);
    bool gives = operation->inputs == INPUT_ALL ||
                 (operation->inputs == INPUT_ROOT && ready->root == w->number);
    return gives && ready->standing != RECORD_IDLE ? bytes : 0;
}

/* The extents that this one worker names. Its own mistake alone: the others need not fail. */
static int check_extents(struct worker *w, const struct piece *p, const struct operation *operation,
                         const struct record_ready *ready)
{
    uint64_t bytes = p->elements * reduce_element_bytes(p->dtype);
    const struct record_output *output = ready->outputs ? &ready->output[0] : NULL;
    if (ready->input_bytes != input_bytes_expected(w, p, operation, ready))
        return -EMSGSIZE;
    if (output && (output->bytes != bytes || output->count != 1))
        return -EMSGSIZE;
    if (!extent_is_lent(w, ready->input_region, ready->input_offset, ready->input_bytes))
        return -EFAULT;
    if (output && !extent_is_lent(w, output->region, output->offset, output->bytes))
        return -EFAULT;
    return 0;
}

/* One payload at most: a receive must stay posted for the next message (W6). The newer one wins,
 * unless the older is being summed. */
static bool keep_payload(struct worker *w, struct announcement *a, const void *data,
                         const void *payload)
{
    if (w->holding && announcement_piece(w->holding)->state != PIECE_COLLECTING)
        return false;
    worker_drop_payload(w);
    a->payload = payload;
    w->holding = a;
    w->held = data;
    return true;
}

static void fill(struct announcement *a, const struct operation *operation,
                 const struct record_ready *ready)
{
    a->operation = operation;
    a->root = ready->root;
    a->priority = ready->priority;
    a->round = ready->round;
    a->word = ready->word;
    a->standing = ready->standing;
    a->input_region = ready->input_region;
    a->input_offset = ready->input_offset;
    a->has_output = ready->outputs > 0;
    a->output_region = ready->output[0].region;
    a->output_offset = ready->output[0].offset;
}

/* The first to announce says what the round does; the rest must agree, or nobody gets a result. */
static void agree(struct worker *w, struct piece *p, const struct announcement *a)
{
    if (!p->operation) {
        p->operation = a->operation;
        p->root = a->root;
    } else if (p->operation != a->operation) {
        piece_fail(p, -EINVAL, "tensor '%s' round %" PRIu64 ": rank %u pushes %s, others %s",
                   p->tensor, p->round, w->number, a->operation->name, p->operation->name);
    } else if (a->operation->inputs == INPUT_ROOT && p->root != a->root) {
        piece_fail(p, -EINVAL,
                   "tensor '%s' round %" PRIu64 ": rank %u names root %u, others root %u",
                   p->tensor, p->round, w->number, a->root, p->root);
    }
    if (a->priority > p->priority)
        p->priority = a->priority;
}

void count_in(struct worker *w, struct piece *p, struct announcement *a)
{
    p->announced++;
    if (p->failure)
        tell_error(w, a);
    else if (p->job->has_left)
        piece_fail(p, -EPIPE, "rank %u has left job '%s'", p->job->left_rank, p->job->name);
    else
        agree(w, p, a);
    if (!p->failure && round_has_quorum(p))
        round_start(p);
}

/* A lane that took the piece over knows no round yet: any will do until all have spoken. */
static bool round_is_acceptable(const struct piece *p, const struct record_ready *ready)
{
    if (p->round == 0)
        return true;
    if (ready->standing != RECORD_ANNOUNCE)
        return ready->round + 1 == p->round || ready->round == p->round;
    return ready->round == p->round || ready->round == p->round + 1;
}

/* What finds no room is lost where the worker hears of it anyway: from the coordinator where the
 * piece is now, from us that its job has failed. Who makes mistakes and does not listen is cut off.
 */
static void refuse(struct worker *w, const struct record_ready *ready, int code, const char *text)
{
    if (ready->standing == RECORD_IDLE && code == -ESTALE)
        return; /* it names no request: the error would be the whole job's */
    int r = tell_error_now(w, ready->word, code, text);
    if (r == -EAGAIN && code != -ESTALE && !w->job->failure)
        fabric_disconnect(w->conn);
}

/* All that can be wrong with an announcement before it touches the round. */
static bool check(struct worker *w, struct piece *p, const struct operation *operation,
                  const struct record_ready *ready)
{
    char text[RECORD_TEXT_BYTES];
    if (ready->epoch != p->epoch) {
        refuse(w, ready, -ESTALE, "the route has changed; wait for the new one");
        return false;
    }
    if (!operation || ready->set != RECORD_SET_ALL ||
        (operation->inputs == INPUT_ROOT && ready->root >= p->job->workers_count)) {
        refuse(w, ready, -EOPNOTSUPP, "unknown operation, rank set or root; is the library newer?");
        return false;
    }
    if (ready->dtype != p->dtype) { /* every rank hears of it, not only who did it */
        piece_fail(p, -EINVAL, "tensor '%s': rank %u pushes %s, declared as %s", p->tensor,
                   w->number, reduce_dtype_name(ready->dtype), reduce_dtype_name(p->dtype));
        refuse(w, ready, p->failure, p->failure_text);
        return false;
    }
    if (operation->divides && !reduce_divides(p->dtype)) {
        snprintf(text, sizeof text, "%s is not defined for %s; sum them", operation->name,
                 reduce_dtype_name(p->dtype));
        refuse(w, ready, -EINVAL, text);
        return false;
    }
    int r = check_extents(w, p, operation, ready);
    if (r < 0) {
        snprintf(text, sizeof text, "input or output is not %" PRIu64 " elements of lent memory",
                 p->elements);
        refuse(w, ready, r, text);
        return false;
    }
    if (!round_is_acceptable(p, ready)) {
        snprintf(text, sizeof text, "round %" PRIu64 " announced, round %" PRIu64 " is open",
                 ready->round, p->round);
        refuse(w, ready, -EPROTO, text);
        return false;
    }
    return true;
}

/* Said before, however often: no effect (W3), whatever has become of the round since. What is owed
 * for it comes anyway. */
static bool is_repeated(const struct worker *w, struct piece *p, const struct record_ready *ready)
{
    struct rank *rank = &p->ranks[w->number];
    const struct announcement *a = rank_said(rank, ready->round);
    return rank->has_spoken && a->round == ready->round && a->word == ready->word;
}

/* Returns whether the payload is kept. */
static bool take(struct worker *w, struct piece *p, const struct operation *operation,
                 const struct record_ready *ready, const void *data, const void *payload)
{
    struct rank *rank = &p->ranks[w->number];
    struct announcement *a = rank_said(rank, ready->round);
    bool is_new = a->round != ready->round || !rank->has_spoken;
    bool keeps = false;
    if (is_new && !list_is_empty(&a->tell_link)) {
        refuse(w, ready, -EPROTO, "announced before the round two back was committed");
        return false;
    }
    if (is_new)
        fill(a, operation, ready);
    if (is_new && payload && ready->round == p->round)
        keeps = keep_payload(w, a, data, payload);
    if (!rank->has_spoken) {
        rank->has_spoken = true;
        p->spoken++;
    }
    if (p->round == 0 && !p->failure)
        round_recover(p);
    else if (is_new && p->failure && ready->standing != RECORD_IDLE)
        tell_error(w, a);
    else if (is_new && ready->round == p->round && ready->standing == RECORD_ANNOUNCE)
        count_in(w, p, a);
    return keeps;
}

bool announce(struct worker *w, const struct record_ready *ready, const void *data,
              const void *payload)
{
    struct lane_job *job = w->job;
    struct piece *p = piece_find(job, ready->piece);
    const struct operation *operation = operation_find(ready->operation);
    if (job->failure) {
        refuse(w, ready, job->failure, job->failure_text);
    } else if (p && is_repeated(w, p, ready)) {
        return false;
    } else if (!p) {
        refuse(w, ready, -ESTALE, "this lane does not serve the piece; wait for the new route");
    } else if (check(w, p, operation, ready)) {
        return take(w, p, operation, ready, data, payload);
    }
    return false;
}

void answer_query(struct worker *w, const struct record_query *query)
{
    struct record_missing missing = {.kind = RECORD_MISSING, .word = query->word};
    struct piece *p = piece_find(w->job, query->piece);
    if (!p)
        return;
    missing.round = p->round;
    for (uint32_t i = 0; i < w->job->workers_count; i++) {
        const struct announcement *a = rank_said(&p->ranks[i], query->round);
        if (a->round != query->round)
            missing.ranks[i / 64] |= UINT64_C(1) << (i % 64);
    }
    /* Whoever asks does so at its deadline and asks again: an answer that finds no room is lost. */
    (void)fabric_send(w->conn, &missing, sizeof missing, NULL, 0);
}
