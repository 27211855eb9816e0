/* Owns struct lane_recording. The lane sends a recording as PASSED records, in order and without a
 * gap. A note of a rank names the round after which the rank begins its next gradient. The lane
 * sends the note before the first set with this gradient, so every beginning of the recording is
 * complete in itself. RULES.md: A116. */
#include "svc/lane/piece/recording.h"

#include "svc/base/clock.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/piece/waits.h"
#include "svc/wire/round_set.h"

#include <errno.h>

/* Time after which the lane sends again if the send queue was full. Rank 0 empties the queue
 * whenever its process calls the library. */
#define RETRY_NS (5 * NS_PER_MS)

struct lane_recording {
    struct lane_wait wait; /* wait for room in the send queue */
    uint64_t sent;         /* newest round whose set was sent */
    uint32_t owed;         /* number of unsent notes */
    struct {
        uint64_t round; /* newest note of the rank; 0: none */
        bool is_owed;
    } notes[]; /* indexed like piece.ranks */
};

static struct lane_recording *recording_of(const struct piece *p)
{
    struct lane_recording **at = takers_recording(p);
    return at ? *at : NULL;
}

int recording_create(struct piece *p)
{
    struct lane_job *job = p->job;
    struct lane_recording *r;
    r = arena_alloc(job->lane->options.arena, &job->account,
                    sizeof *r + p->members * sizeof r->notes[0]);
    if (!r)
        return -ENOMEM;
    r->wait.piece = p;
    *takers_recording(p) = r;
    return 0;
}

void recording_free(struct piece *p)
{
    struct lane_recording *r = recording_of(p);
    if (!r)
        return;
    wait_unlist(&r->wait);
    arena_free(p->job->lane->options.arena, &p->job->account, r);
    *takers_recording(p) = NULL;
}

bool recording_is_here(const struct piece *p) { return recording_of(p); }

/* Returns whether rank 0 has left or is lost, so that no process writes the recording any more. */
static bool recording_is_over(const struct piece *p)
{
    enum worker_state state = p->job->workers[0].state;
    return state == WORKER_LEFT || state == WORKER_LOST;
}

void recording_begins(const struct rank *rank, uint64_t round)
{
    struct lane_recording *r = recording_of(rank->piece);
    size_t i = (size_t)(rank - rank->piece->ranks);
    if (!r || r->notes[i].round == round)
        return;
    r->notes[i].round = round;
    r->owed += !r->notes[i].is_owed;
    r->notes[i].is_owed = true;
}

static bool recording_send_one(struct piece *p, struct record_chosen passed)
{
    const struct worker *w = &p->job->workers[0];
    passed.kind = RECORD_PASSED;
    passed.epoch = p->epoch;
    return w->conn && fabric_send(w->conn, &passed, sizeof passed, NULL, 0) == 0;
}

static bool recording_send_note(struct piece *p, uint32_t i)
{
    struct lane_recording *r = recording_of(p);
    struct record_chosen taker = {.form = RECORD_FORM_TAKERS, .round = r->notes[i].round};
    ranks_add(taker.ranks, p->ranks[i].worker->number);
    if (!recording_send_one(p, taker))
        return false;
    r->notes[i].is_owed = false;
    r->owed--;
    return true;
}

/* Sends each unsent note whose round's set was sent. Returns false if a note cannot be sent now. */
static bool recording_send_notes(struct piece *p)
{
    struct lane_recording *r = recording_of(p);
    for (uint32_t i = 0; r->owed > 0 && i < p->members; i++) {
        bool is_due = r->notes[i].is_owed && r->notes[i].round <= r->sent;
        if (is_due && !recording_send_note(p, i))
            return false;
    }
    return true;
}

/* Sends the sets of closed rounds in order. A note is sent after the set of its round, and before
 * the next set. A set that is not in job.choices is skipped, because a former owner has closed its
 * round. Returns false if some records cannot be sent now. */
static bool recording_send_all(struct piece *p)
{
    struct lane_recording *r = recording_of(p);
    for (; r->sent + 1 < p->round; r->sent++) {
        const struct record_chosen *set = &p->job->choices[(r->sent + 1) % CHOICES_PER_JOB];
        if (!recording_send_notes(p))
            return false;
        if (set->round == r->sent + 1 && !recording_send_one(p, *set))
            return false;
    }
    return recording_send_notes(p);
}

void recording_send(struct piece *p)
{
    struct lane_recording *r = recording_of(p);
    if (!r || p->round == 0)
        return;
    if (p->round > CHOICES_PER_JOB && r->sent < p->round - CHOICES_PER_JOB)
        r->sent = p->round - CHOICES_PER_JOB; /* job.choices no longer contains the older sets */
    wait_stop(&r->wait);
    if (!recording_is_over(p) && !recording_send_all(p))
        wait_start(&r->wait, p->job->lane->now_ns + RETRY_NS);
}

/* Of the CHOICES_PER_JOB sets that a lane stores, two are sets that a replay sends ahead. */
bool recording_is_behind(const struct piece *p)
{
    const struct lane_recording *r = recording_of(p);
    return r && !recording_is_over(p) && r->sent + CHOICES_PER_JOB - 3 < p->round;
}

bool recording_answers(const struct rank *rank)
{
    const struct lane_recording *r = recording_of(rank->piece);
    return !r || recording_is_over(rank->piece) || !r->notes[rank - rank->piece->ranks].is_owed;
}
