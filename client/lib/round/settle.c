/* Results, commits, errors and other messages of lanes. The only file that moves a piece from
 * announced to landed to idle (L1). A word that names nothing open is counted and dropped. */
#include "client/lib/round/settle.h"

#include "client/lib/job/request.h"
#include "client/lib/job/state_copy.h"
#include "client/lib/link/link.h"
#include "client/lib/round/push.h"
#include "svc/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The round of one tensor of a request is over for its caller. */
static void settle_tensor(struct gp_tensor *t)
{
    struct gp_request *q = t->open_request;
    if (!q || q->err.code)
        return; /* nobody waits any more, or with an error that is told already */
    list_remove(&t->in_request);
    list_append(t->open.copies_out ? &q->landed : &q->done, &t->in_request);
    if (t->open.copies_out)
        return; /* who waits copies, and notes it */
    trace_step(t->job->trace, t->open.traced_ns, TRACE_COPYING);
    t->open.traced_ns[TRACE_DONE] = t->open.traced_ns[TRACE_COPYING];
    recorder_note(t);
}

/* It is committed after all. */
static void settle_kept(struct piece *p)
{
    p->tensor->has_kept = false;
    p->committed = p->tensor->round - 1;
}

static void land(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    if (t->has_kept)
        settle_kept(p); /* a lane opens no round before the one before is committed */
    p->standing = PIECE_LANDED;
    p->is_orphan = false; /* whoever wrote it owns it */
    if (--t->without_result == 0)
        trace_step(t->job->trace, t->open.traced_ns, TRACE_LANDED);
    if (t->without_result == 0 && !t->open.ends_committed)
        settle_tensor(t);
    if (t->without_result == 0)
        hold_check(t->job);
}

static void end_round(struct gp_tensor *t)
{
    if (t->closed_round > t->round)
        t->round = t->closed_round; /* the others are further: the next one is theirs */
    if (t->open.ends_committed)
        settle_tensor(t);
    if (t->is_queued)
        push_begin_queued(t);
}

/* Everybody holds the result, so we do: also when the word of it is still on its way (W4). */
static void commit(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    if (p->standing == PIECE_ANNOUNCED)
        land(p);
    piece_retract(p);
    p->standing = PIECE_IDLE;
    p->committed = t->round;
    p->lost = NULL; /* its new lane has all that it needs */
    if (--t->without_commit == 0)
        end_round(t);
}

/* The piece that a word of this lane names; one of another lane names nothing here. */
static struct piece *piece_of(struct link *l, uint32_t word)
{
    struct piece *p = piece_find(l->job, word);
    if (p && p->link == l && p->standing != PIECE_IDLE)
        return p;
    l->job->stale++;
    return NULL;
}

static void settle_word(struct link *l, uint32_t word)
{
    struct piece *p = piece_of(l, word);
    l->job->spoke = l;
    if (p && p->standing == PIECE_ANNOUNCED)
        land(p);
}

static void take_commit(struct link *l, const struct record_commit *record)
{
    for (uint32_t i = 0; i < record->count; i++) {
        struct piece *p = piece_find_kept(l->job, record->words[i]);
        if (p && p->link == l)
            settle_kept(p);
        else if ((p = piece_of(l, record->words[i])))
            commit(p);
    }
}

/* ---- a worker that is new ---- */

/* One that waits to be told its round has nothing open. */
static struct piece *entering_piece(struct link *l, uint32_t word)
{
    struct piece *p = piece_find(l->job, word);
    return p && p->link == l && p->is_entering ? p : NULL;
}

static void piece_enter(struct piece *p, uint64_t round)
{
    struct gp_tensor *t = p->tensor;
    p->is_entering = false;
    p->committed = round;
    if (round > t->round)
        t->round = round;
    t->knows_steps = t->knows_steps && t->steps_round == t->round; /* another is told, too */
    if (--t->entering == 0 && t->is_queued)
        push_begin_queued(t);
}

/* ---- other messages ---- */

/* The lane has not read the gradient, and has given us a later result for it (W12). */
static void take_closed(struct link *l, const struct record_closed *record)
{
    struct piece *p = entering_piece(l, record->word);
    if (p) {
        piece_enter(p, record->round);
        return;
    }
    p = piece_of(l, record->word);
    if (!p)
        return;
    if (record->round > p->tensor->closed_round)
        p->tensor->closed_round = record->round;
    commit(p);
    if (record->round > p->committed)
        p->committed = record->round;
}

static void take_chosen(struct link *l, const struct record_chosen *record)
{
    struct record_chosen *chosen = &l->job->chosen[record->round & 1];
    if (record->round <= chosen->round)
        return;
    *chosen = *record;
    l->chosen_round[record->round & 1] = record->round; /* it comes from there */
    link_flush_all(l->job);
}

/* A lane names the tensor when ranks disagree; of a mistake that is this worker's alone it says
 * what, not where. Who had a piece before it only we know. */
static void break_tensor(struct piece *p, int code, const char *text)
{
    struct gp_tensor *t = p->tensor;
    char sentence[ERR_TEXT_BYTES], name[128];
    bool is_named = strncmp(text, "tensor '", strlen("tensor '")) == 0;
    if (is_named)
        snprintf(sentence, sizeof sentence, "%s", text);
    else
        snprintf(sentence, sizeof sentence, "tensor '%.100s': %s", t->name,
                 *text ? text : err_text(code));
    if (code == -EOWNERDEAD && p->lost)
        text_append(sentence, sizeof sentence, " (it was %s)",
                    link_name(p->lost, name, sizeof name));
    tensor_break(t, code, sentence);
}

static void take_error(struct link *l, const struct record_error *record)
{
    char text[RECORD_TEXT_BYTES + 1] = {0};
    memcpy(text, record->text, record->text_bytes);
    if (record->word == RECORD_WORD_NONE) {
        job_break(l->job, record->code, "%s", text);
        return;
    }
    struct piece *p = entering_piece(l, record->word);
    if (!p)
        p = piece_of(l, record->word);
    if (!p)
        return;
    if (record->code == -ESTALE)
        p->is_orphan = true; /* the route change that says where to is on its way */
    else
        break_tensor(p, record->code, text);
}

static void take_missing(struct link *l, const struct record_missing *record)
{
    static const uint64_t nobody[RECORD_MISSING_WORDS];
    struct piece *p = entering_piece(l, record->word);
    p = p ? p : piece_of(l, record->word);
    struct gp_request *q = p ? p->tensor->request : NULL;
    if (!q || q->queries == 0)
        return;
    q->queries--;
    if (q->missing_tensor || memcmp(record->ranks, nobody, sizeof nobody) == 0)
        return;
    q->missing_tensor = p->tensor;
    q->missing_round = p->is_entering ? record->round : p->tensor->round;
    memcpy(q->missing, record->ranks, sizeof q->missing);
    q->missing_have_pushed = record->have_pushed;
}

static void take_ticket(struct link *l, const struct record_ticket *record)
{
    const struct record_connect *ticket = &record->connect;
    l->has_ticket =
        ticket->job == l->job->id && ticket->rank == l->job->rank && ticket->lane == l->lane;
    l->ticket = *ticket;
}

static void settle_message(struct link *l, const void *data, size_t bytes)
{
    union record record;
    size_t record_bytes_seen;
    char name[128];
    if (record_check(data, bytes, &record, &record_bytes_seen) < 0) {
        link_break(l, -EBADMSG, "%s sent something that is no message of version %s",
                   link_name(l, name, sizeof name), GP_VERSION);
        return;
    }
    switch (record.kind) {
    case RECORD_COMMIT:
        l->job->spoke = l;
        take_commit(l, &record.commit);
        break;
    case RECORD_ERROR: take_error(l, &record.error); break;
    case RECORD_MISSING: take_missing(l, &record.missing); break;
    case RECORD_TICKET: take_ticket(l, &record.ticket); break;
    case RECORD_CLOSED: take_closed(l, &record.closed); break;
    case RECORD_BACKED: copy_backed(l->job, l, &record.backed); break;
    case RECORD_CHOSEN: take_chosen(l, &record.chosen); break;
    default: l->job->stale++; /* what only a worker says */
    }
}

void settle_event(void *job, const struct fabric_event *event)
{
    struct link *l = event->owner;
    (void)job; /* the link knows it */
    switch (event->kind) {
    case FABRIC_EVENT_OPEN: link_opened(l); break;
    case FABRIC_EVENT_WORD: settle_word(l, event->word); break;
    case FABRIC_EVENT_MESSAGE:
        settle_message(l, event->data, event->bytes);
        fabric_message_done(event->conn, event->data);
        break;
    case FABRIC_EVENT_ROOM: link_flush(l); break;
    case FABRIC_EVENT_CLOSED: link_closed(l, event); break;
    default: l->job->stale++; /* only lanes get such events */
    }
}
