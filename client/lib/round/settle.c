/* Results, commits, errors and other messages of lanes. Only this file changes the state of a piece
 * from announced to landed to idle (L1). A message about a piece or round that is not open is
 * counted and dropped. */
#include "client/lib/round/settle.h"

#include "client/lib/job/request.h"
#include "client/lib/job/row_call.h"
#include "client/lib/job/state_copy.h"
#include "client/lib/link/link.h"
#include "client/lib/round/gradients.h"
#include "client/lib/round/push.h"
#include "client/lib/sets/sets.h"
#include "svc/base/text.h"
#include "svc/wire/round_set.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Moves a tensor to the next list of its request. Called when the caller need not wait for the
 * tensor's round any longer. */
static void settle_tensor(struct gp_tensor *t)
{
    struct gp_request *q = t->open_request;
    if (!q || q->err.code)
        return; /* no thread waits for the round any longer, or the request has failed */
    list_remove(&t->in_request);
    list_append(t->open.copies_out ? &q->landed : &q->done, &t->in_request);
    if (t->open.copies_out)
        return; /* the waiting thread copies the result, and records the round */
    trace_step(t->job->trace, t->open.traced_ns, TRACE_COPYING);
    t->open.traced_ns[TRACE_DONE] = t->open.traced_ns[TRACE_COPYING];
    recorder_note(t);
}

/* Marks the kept round as committed. */
static void settle_kept(struct piece *p)
{
    p->tensor->has_kept = false;
    p->committed = p->tensor->round - 1;
}

static void settle_landed(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    if (t->has_kept)
        /* the kept round is committed, too: a lane opens a round only after the commit of the round
         * before */
        settle_kept(p);
    p->standing = PIECE_LANDED;
    p->is_orphan = false; /* the lane that has written the result owns the piece */
    if (--t->without_result == 0)
        trace_step(t->job->trace, t->open.traced_ns, TRACE_LANDED);
    if (t->without_result == 0 && !t->open.ends_committed && !t->open.is_taking)
        settle_tensor(t);
    if (t->without_result == 0)
        hold_check(t->job);
}

static void settle_round(struct gp_tensor *t)
{
    if (t->closed_round > t->round)
        /* other ranks have completed later rounds; this rank continues with the round after
         * these */
        t->round = t->closed_round;
    if (t->open.ends_committed && !t->open.is_taking)
        settle_tensor(t);
    if (t->is_queued)
        push_begin_queued(t);
}

/* Marks the piece's open round as committed, and as landed: the result is in memory even if the
 * lane's word has not arrived, because all results land before any COMMIT (W4). */
static void settle_committed(struct piece *p)
{
    struct gp_tensor *t = p->tensor;
    if (p->standing == PIECE_ANNOUNCED)
        settle_landed(p);
    piece_retract(p);
    p->standing = PIECE_IDLE;
    p->committed = t->round;
    /* the loss no longer matters, because the piece's new lane has all state that it needs */
    p->lost = NULL;
    if (--t->without_commit == 0)
        settle_round(t);
}

/* Finds the open piece to which a word refers. A word from a lane that does not own the piece is
 * stale. */
static struct piece *settle_find_open(struct link *l, uint32_t word)
{
    struct piece *p = piece_find(l->job, word);
    if (p && p->link == l && p->standing != PIECE_IDLE)
        return p;
    l->job->stale++;
    return NULL;
}

static void settle_word(struct link *l, uint32_t word)
{
    l->job->spoke = l;
    if (word & EXCHANGE_WORD)
        return row_calls_word(l->job, l->lane, word);
    struct piece *p = settle_find_open(l, word);
    if (p && p->standing == PIECE_ANNOUNCED)
        settle_landed(p);
}

static void settle_commits(struct link *l, const struct record_commit *record)
{
    for (uint32_t i = 0; i < record->count; i++) {
        struct piece *p = piece_find_kept(l->job, record->words[i]);
        if (p && p->link == l)
            settle_kept(p);
        else if ((p = settle_find_open(l, record->words[i])))
            settle_committed(p);
    }
}

/* ---- late workers ---- */

/* Finds the piece of this word if the lane still has to send the number of its last round (L21). */
static struct piece *settle_find_entering(struct link *l, uint32_t word)
{
    struct piece *p = piece_find(l->job, word);
    return p && p->link == l && p->is_entering ? p : NULL;
}

static struct piece *settle_find(struct link *l, uint32_t word)
{
    struct piece *p = settle_find_entering(l, word);
    return p ? p : settle_find_open(l, word);
}

static void settle_entry(struct piece *p, uint64_t round)
{
    struct gp_tensor *t = p->tensor;
    p->is_entering = false;
    p->committed = round;
    if (round > t->round)
        t->round = round;
    /* a lane's step count is valid only for the round that the lane has named */
    t->knows_steps = t->knows_steps && t->steps_round == t->round;
    if (--t->entering == 0 && t->is_queued)
        push_begin_queued(t);
}

/* ---- other messages ---- */

/* Handles the answer to a request for a closed round's result. `round` is the requested round if
 * its result has landed. A later `round` means that the lane has no earlier result; this rank then
 * fetches the later round for all tensors (W22). */
static void settle_answer(struct piece *p, uint64_t round)
{
    struct gp_tensor *t = p->tensor;
    struct backup_rounds *b = &t->job->backup;
    if (round <= t->round)
        return settle_committed(p);
    if (b->taking + round - t->round > b->newest)
        b->newest = b->taking + round - t->round;
    piece_retract(p);
    p->standing = PIECE_IDLE;
    t->without_commit--;
}

/* Finds the piece of the hidden tensor if this rank waits for the answer to its report. */
static struct piece *settle_find_reported(struct link *l, uint32_t word)
{
    const struct backup_rounds *b = &l->job->backup;
    struct piece *p = b->report == REPORT_SENT ? piece_find(l->job, word) : NULL;
    return p && p->link == l && p->tensor == b->leader ? p : NULL;
}

/* Handles the answer to the report of this rank. `round` is the fetched round if this rank may
 * continue, otherwise the round to fetch next. */
static void settle_reported(struct piece *p, uint64_t round)
{
    struct gp_tensor *t = p->tensor;
    struct backup_rounds *b = &t->job->backup;
    b->report = REPORT_ANSWERED;
    if (round > b->newest)
        b->newest = round;
    if (round > t->round)
        t->round = t->closed_round = p->committed = round;
}

void settle_taken(struct gp_tensor *t)
{
    t->open.is_taking = false;
    settle_tensor(t);
}

/* Handles the answer to an announcement without a gradient. `round` is the newest closed round. If
 * `round` is the round before the announced one, the announced round is open: the lane that had
 * closed this round has died. */
static void settle_skipped(struct piece *p, uint64_t round)
{
    struct gp_tensor *t = p->tensor;
    bool is_open = round < t->round;
    t->open.is_taking = false;
    t->closed_round = round > t->closed_round ? round : t->closed_round;
    settle_committed(p);
    if (is_open || round > p->committed)
        t->round = p->committed = round;
}

/* Handles CLOSED: the lane has not read the gradient, and has written a later result (W12). */
static void settle_closed(struct link *l, const struct record_closed *record)
{
    l->job->spoke = l;
    struct piece *reported = settle_find_reported(l, record->word);
    if (reported)
        return settle_reported(reported, record->round);
    struct piece *p = settle_find(l, record->word);
    if (p && p->is_entering)
        return settle_entry(p, record->round);
    if (!p)
        return;
    if (p->tensor->open.is_taking && p->tensor == l->job->backup.leader)
        return settle_skipped(p, record->round);
    if (p->tensor->open.is_taking)
        return settle_answer(p, record->round);
    if (record->round > p->tensor->closed_round)
        p->tensor->closed_round = record->round;
    settle_committed(p);
    if (record->round > p->committed)
        p->committed = record->round;
}

/* Stores the round for gp_job_passed(), if this rank lacks its results. */
static void settle_passed_over(struct gp_job *job, uint64_t round)
{
    if (job->backup.count > 0 && round > job->backup.held)
        backup_pass(&job->backup, round);
}

/* Stores the set of a round from CHOSEN. If this rank still computes another gradient of the round,
 * the set does not contain this gradient. */
static void settle_chosen(struct link *l, const struct record_chosen *record)
{
    enum backup_phase phase = l->job->backup.phase;
    struct record_chosen *chosen = &l->job->chosen[record->round & 1];
    bool is_possible = record->form == RECORD_FORM_RANKS || gradients_most(l->job) > 1;
    if (!is_possible)
        l->job->stale++;
    if (!is_possible || record->round <= chosen->round)
        return;
    *chosen = *record;
    if (phase == BACKUP_WANTED || phase == BACKUP_AGAIN)
        settle_passed_over(l->job, record->round);
    (void)sets_closed(l->job, record->round);
    l->chosen_round[record->round & 1] = record->round; /* the lane of this link has the set */
    link_flush_all(l->job);
}

/* Handles PASSED. The lane of a recorded job sends this record for every round, also to a rank of
 * the set. */
static void settle_passed(struct link *l, const struct record_chosen *record)
{
    struct gp_job *job = l->job;
    bool is_of_takers = record->form == RECORD_FORM_TAKERS, is_recorded;
    const struct sets_way from = {
        .conn = l->conn, .lane = l->lane, .openings = l->openings, .epoch = record->epoch};
    is_recorded = sets_heard(job, &from, record);
    if (job->backup.count == 0 || (is_of_takers && !is_recorded))
        job->stale++;
    else if (!is_of_takers && sets_closed(job, record->round))
        link_flush_all(job);
    bool is_dropped = !is_of_takers && round_set_count(record, job->rank) == 0;
    if (is_dropped)
        settle_passed_over(job, record->round);
}

static bool settle_link_follows(const struct link *l)
{
    for_each_tensor (t, l->job) {
        if (!terms_are_following(&t->terms))
            continue;
        for_each_piece (p, t) {
            if (p->link == l)
                return true;
        }
    }
    return false;
}

static uint32_t settle_count_lanes(struct gp_job *job)
{
    uint32_t count = 0;
    for_each_link (l, job)
        count += settle_link_follows(l);
    return count;
}

/* Forwards the sums of one lane to the leader lane, with the number of lanes that send sums (W22).
 * If the connection is closed or has no room, the sums are dropped, and the leader lane has no
 * measurement of this round. */
static void settle_measure(struct link *l, const struct record_measure *record)
{
    const struct gp_tensor *leader = l->job->backup.leader;
    struct link *to = leader && leader->pieces ? leader->pieces->link : NULL;
    struct record_measure sums = *record;
    sums.lanes = (uint16_t)settle_count_lanes(l->job);
    if (to && to->state == LINK_OPEN)
        (void)fabric_send(to->conn, &sums, sizeof sums, NULL, 0);
    else
        l->job->stale++;
}

/* Fails the tensor of a piece with the lane's error. If the text does not begin with the tensor's
 * name, the name is added. If state was lost, the name of the lost lane is added, too, because the
 * new owner does not know this name. */
static void settle_failure(struct piece *p, int code, const char *text)
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
        text_append(sentence, sizeof sentence, " (lost: %s)",
                    link_name(p->lost, name, sizeof name));
    tensor_break(t, code, sentence);
}

static void settle_error(struct link *l, const struct record_error *record)
{
    char text[RECORD_TEXT_BYTES + 1] = {0};
    memcpy(text, record->text, record->text_bytes);
    if (record->word == RECORD_WORD_NONE) {
        job_break(l->job, record->code, "%s", text);
        return;
    }
    if (record->word & EXCHANGE_WORD)
        return row_calls_error(l->job, l->lane, record);
    struct piece *p = settle_find_reported(l, record->word);
    p = p ? p : settle_find(l, record->word);
    if (!p)
        return;
    if (record->code == -ESTALE)
        p->is_orphan = true; /* the coordinator will send a RouteChange with the new owner */
    else
        settle_failure(p, record->code, text);
}

static void settle_missing(struct link *l, const struct record_missing *record)
{
    static const uint64_t nobody[RECORD_MISSING_WORDS];
    struct piece *p = settle_find(l, record->word);
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

/* Handles the answer to a query about a table. */
static void settle_clocks(struct link *l, const struct record_clocks *record)
{
    if (record->word == RECORD_WORD_NONE)
        return link_keep_rows(l);
    struct gp_request *q = row_calls_late(l->job, record);
    if (q && q->queries > 0)
        q->queries--;
}

static void settle_ticket(struct link *l, const struct record_ticket *record)
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
        link_break(l, -EBADMSG,
                   "%s sent a message that version %s does not have; install the same version "
                   "of gradpool on both hosts",
                   link_name(l, name, sizeof name), GP_VERSION);
        return;
    }
    switch (record.kind) {
    case RECORD_COMMIT:
        l->job->spoke = l;
        settle_commits(l, &record.commit);
        break;
    case RECORD_ERROR: settle_error(l, &record.error); break;
    case RECORD_MISSING: settle_missing(l, &record.missing); break;
    case RECORD_TICKET: settle_ticket(l, &record.ticket); break;
    case RECORD_CLOSED: settle_closed(l, &record.closed); break;
    case RECORD_BACKED: copy_backed(l->job, l, &record.backed); break;
    case RECORD_CLOCKS: settle_clocks(l, &record.clocks); break;
    case RECORD_CHOSEN: settle_chosen(l, &record.chosen); break;
    case RECORD_GO_ON: gradients_hear(l, &record.go_on); break;
    case RECORD_PASSED: settle_passed(l, &record.chosen); break;
    case RECORD_MEASURE: settle_measure(l, &record.measure); break;
    /* a record of another kind is for lanes, or not for this job */
    default: l->job->stale++;
    }
}

void settle_event(void *job, const struct fabric_event *event)
{
    struct link *l = event->owner;
    (void)job; /* the link has a pointer to the job */
    switch (event->kind) {
    case FABRIC_EVENT_OPEN: link_opened(l); break;
    case FABRIC_EVENT_WORD: settle_word(l, event->word); break;
    case FABRIC_EVENT_MESSAGE:
        settle_message(l, event->data, event->bytes);
        fabric_message_done(event->conn, event->data);
        break;
    case FABRIC_EVENT_ROOM: link_flush(l); break;
    case FABRIC_EVENT_CLOSED: link_closed(l, event); break;
    default: l->job->stale++; /* events of other kinds occur on lanes only */
    }
}
