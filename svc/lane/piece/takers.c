/* Takers are ranks outside a set. This file stores the rounds whose results the takers receive, and
 * decides how long later rounds wait for takers. Lanes that update parameters store the states of
 * two rounds, so the close of round r + 2 overwrites the results of round r. The leader lane
 * therefore delays this close, for a limited time, while a rank receives the results of round r.
 * Lanes that only sum store the results of `lag` rounds, and the leader lane waits for each rank
 * without a limit. Owns struct takers. RULES.md: A87, A95. */
#include "svc/lane/piece/takers.h"

#include "svc/base/clock.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/waits.h"

#include <string.h>

/* Number of rounds whose times are stored. The usual time is their median, so one long pause of all
 * ranks has no effect. */
#define SPANS 16
/* The shortest wait, which is also the wait before a round was measured. Within this time the
 * kernel schedules a thread of a worker. */
#define WAIT_LEAST_NS (10 * NS_PER_MS)
/* Number of rounds that a taker receives after one announcement. After these rounds the taker
 * begins its next gradient, even if a newer round has been committed. Without this limit, a rank
 * whose memory is slower than a round would never begin a gradient. */
#define TRIES_MAX 2
/* A wait has failed if the rank has not received the results by the end of the wait. Each failed
 * wait doubles the next wait for this rank, up to DOUBLINGS_MAX times. A slow rank thus gets enough
 * time, and a stopped rank delays only one round. */
#define DOUBLINGS_MAX 6
/* largest usual time that can be doubled so often without an overflow */
#define USUAL_MOST_NS (UINT64_MAX >> (DOUBLINGS_MAX + 2))

struct taker {
    uint64_t round;  /* round whose results the rank receives; 0: none */
    uint64_t held;   /* newest round whose stored result the rank no longer needs */
    uint64_t landed; /* round in the rank's report that waits for an answer */
    bool asks;       /* a report of the rank waits for an answer */
    /* number of rounds whose results the rank has received since its announcement */
    uint8_t tries;
    uint8_t in_vain; /* number of consecutive failed waits for the rank */
};

struct takers {
    struct lane_wait wait;            /* the wait of the open round */
    struct closing *closing;          /* the rule of the job's rounds (closing.h); NULL: none */
    struct lane_replay *replay;       /* replay.h; NULL: no sets are replayed */
    struct lane_recording *recording; /* recording.h; NULL: no sets are recorded */
    uint64_t closed_ns;               /* time of the last close; 0: this lane has closed no round */
    uint64_t spans_ns[SPANS];
    uint32_t spans;    /* number of measured rounds */
    uint32_t asking;   /* number of reports that wait for an answer */
    struct taker of[]; /* indexed like piece.ranks */
};

struct takers *takers_create(struct piece *p)
{
    struct lane_job *job = p->job;
    size_t bytes = sizeof(struct takers) + p->members * sizeof(struct taker);
    struct takers *ts = arena_alloc(job->lane->options.arena, &job->account, bytes);
    if (ts)
        ts->wait.piece = p;
    return ts;
}

void takers_free(struct piece *p)
{
    if (p->takers)
        wait_unlist(&p->takers->wait);
    arena_free(p->job->lane->options.arena, &p->job->account, p->takers);
}

struct closing **takers_closing(const struct piece *p)
{
    return p->takers ? &p->takers->closing : NULL;
}

struct lane_replay **takers_replay(const struct piece *p)
{
    return p->takers ? &p->takers->replay : NULL;
}

struct lane_recording **takers_recording(const struct piece *p)
{
    return p->takers ? &p->takers->recording : NULL;
}

/* ---- what a rank takes ---- */

static struct taker *taker_of(const struct rank *rank)
{
    struct takers *ts = rank->piece->takers;
    return ts ? &ts->of[rank - rank->piece->ranks] : NULL;
}

static void taker_take(struct taker *t, uint64_t round)
{
    t->round = round;
    t->tries += t->tries < TRIES_MAX;
}

static void taker_hold(struct taker *t, uint64_t round)
{
    t->held = round > t->held ? round : t->held;
}

void takers_hold_before(const struct rank *rank, uint64_t round)
{
    taker_hold(taker_of(rank), round - 1);
}

bool takers_holds(const struct rank *rank, uint64_t round) { return taker_of(rank)->held >= round; }

void takers_begin(const struct rank *rank, uint64_t round)
{
    struct taker *t = taker_of(rank);
    if (!t)
        return;
    t->tries = 0;
    taker_take(t, round);
}

void takers_landed(const struct rank *rank, uint64_t round)
{
    struct taker *t = taker_of(rank);
    rank->piece->takers->asking += !t->asks;
    t->asks = true;
    t->landed = round;
    t->round = 0;
    if (round != RECORD_ROUND_NONE)
        taker_hold(t, round);
}

struct rank *takers_asking(struct piece *p, const struct rank *after)
{
    const struct takers *ts = p->takers;
    uint32_t first = after ? (uint32_t)(after - p->ranks) + 1 : 0;
    for (uint32_t i = first; ts->asking > 0 && i < p->members; i++) {
        /* an answer needs an announcement of the rank, because the message names its word */
        if (ts->of[i].asks && rank_newest(&p->ranks[i])->round > 0)
            return &p->ranks[i];
    }
    return NULL;
}

uint64_t takers_reported(const struct rank *rank) { return taker_of(rank)->landed; }

uint64_t takers_answer_with(const struct rank *rank, uint64_t round)
{
    struct taker *t = taker_of(rank);
    takers_forget(rank);
    t->in_vain = 0;
    if (rank->piece->terms.lag == 0 && t->landed != round)
        taker_take(t, round);
    return round;
}

uint64_t takers_answer(const struct rank *rank)
{
    struct taker *t = taker_of(rank);
    uint64_t newest = rank->piece->round - 1;
    takers_forget(rank);
    if (rank->piece->terms.lag > 0)
        /* lanes only sum, so the rank must receive the results of all rounds, and closes wait for
         * the rank */
        return newest;
    if (t->landed != RECORD_ROUND_NONE)
        t->in_vain = 0;
    if (t->landed != RECORD_ROUND_NONE && (t->landed == newest || t->tries == TRIES_MAX))
        return t->landed;
    taker_take(t, newest);
    return newest;
}

void takers_forget(const struct rank *rank)
{
    struct taker *t = taker_of(rank);
    if (!t)
        return;
    rank->piece->takers->asking -= t->asks;
    t->asks = false;
}

/* ---- the wait ---- */

static uint64_t usual_ns(const struct takers *ts)
{
    uint64_t sorted[SPANS];
    uint32_t count = ts->spans < SPANS ? ts->spans : SPANS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > ts->spans_ns[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = ts->spans_ns[i];
    }
    return count > 0 ? sorted[count / 2] : 0;
}

static bool taker_delays(const struct piece *p, uint32_t i)
{
    const struct taker *t = &p->takers->of[i];
    enum worker_state state = p->ranks[i].worker->state;
    bool may_land = state != WORKER_LEFT && state != WORKER_LOST;
    return t->round > 0 && t->round + 2 <= p->round && may_land;
}

/* Returns the longest wait for a rank; 0: no rank delays the open round. */
static uint64_t takers_wait_ns(const struct piece *p)
{
    const struct takers *ts = p->takers;
    uint64_t usual = 2 * usual_ns(ts), longest = 0;
    if (usual < WAIT_LEAST_NS)
        usual = WAIT_LEAST_NS;
    for (uint32_t i = 0; i < p->members; i++) {
        uint64_t wait = taker_delays(p, i) ? usual << ts->of[i].in_vain : 0;
        longest = wait > longest ? wait : longest;
    }
    return longest;
}

static void takers_give_up(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct taker *t = &p->takers->of[i];
        if (!taker_delays(p, i))
            continue;
        t->round = 0;
        t->in_vain += t->in_vain < DOUBLINGS_MAX;
    }
}

/* Returns whether a rank lacks the oldest result that the lanes store. */
static bool takers_lag(const struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        enum worker_state state = p->ranks[i].worker->state;
        bool may_land = state != WORKER_LEFT && state != WORKER_LOST;
        if (may_land && p->takers->of[i].held + p->terms.lag < p->round)
            return true;
    }
    return false;
}

bool takers_hold(struct piece *p)
{
    struct takers *ts = p->takers;
    if (!ts)
        return false;
    if (p->terms.lag > 0)
        return takers_lag(p);
    uint64_t wait_ns = takers_wait_ns(p), now_ns = p->job->lane->now_ns;
    if (wait_ns > 0 && ts->wait.until_ns == 0)
        wait_start(&ts->wait, now_ns + wait_ns);
    if (wait_ns > 0 && now_ns < ts->wait.until_ns)
        return true;
    takers_give_up(p);
    wait_stop(&ts->wait);
    return false;
}

void takers_closed(struct piece *p)
{
    struct takers *ts = p->takers;
    if (!ts)
        return;
    uint64_t now_ns = p->job->lane->now_ns;
    if (ts->closed_ns > 0)
        ts->spans_ns[ts->spans++ % SPANS] = now_ns - ts->closed_ns;
    ts->closed_ns = now_ns;
    for (uint32_t i = 0; i < p->members; i++) {
        /* a former leader lane may have closed this round with another set, and job.choices then
         * lacks ranks of this lane's set */
        if (quorum_was_chosen(p, &p->ranks[i], p->round))
            taker_hold(&ts->of[i], p->round);
    }
}

/* ---- the state that moves ---- */

/* Writes the usual time of a round, followed by one round number for each rank. With `lag`, the
 * number of a rank is the newest round whose result the rank does not need. Without `lag`, the
 * number is the round whose results the rank receives. */
void takers_save(const struct piece *p, uint64_t *ret_words)
{
    const struct takers *ts = p->takers;
    if (!ts)
        return;
    ret_words[0] = usual_ns(ts);
    for (uint32_t i = 0; i < p->members; i++)
        ret_words[i + 1] = p->terms.lag > 0 ? ts->of[i].held : ts->of[i].round;
}

bool takers_load(struct piece *p, const uint64_t *words)
{
    struct takers *ts = p->takers;
    if (!ts)
        return true;
    if (words[0] > USUAL_MOST_NS)
        return false;
    for (uint32_t i = 0; i < p->members; i++) {
        if (words[i + 1] > RECORD_ROUND_MOST)
            return false;
        if (p->terms.lag > 0)
            taker_hold(&ts->of[i], words[i + 1]);
        else if (words[i + 1] > 0)
            taker_take(&ts->of[i], words[i + 1]);
    }
    ts->spans_ns[0] = words[0];
    ts->spans = words[0] > 0;
    return true;
}
