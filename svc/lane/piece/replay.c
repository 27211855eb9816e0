/* Owns struct lane_replay, which stores the takers of the recorded rounds. The recorded sets are in
 * lane_job.choices, like all other known sets. In a replay, round r + 1 closes only after all
 * takers of round r have its results. A taker therefore has the results of round r before a newer
 * round closes, however slow the rank is. RULES.md: A115. */
#include "svc/lane/piece/replay.h"

#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/takers.h"
#include "svc/wire/round_set.h"

#include <errno.h>

/* Number of rounds whose takers are stored: the rounds by which a rank may lag behind, and the
 * rounds that rank 0 sends ahead. */
#define ROUNDS_KNOWN 32

struct lane_replay {
    uint64_t last;                             /* last recorded round; 0: not known yet */
    struct record_chosen takers[ROUNDS_KNOWN]; /* at the index round % ROUNDS_KNOWN */
};

static struct lane_replay *replay_of(const struct piece *p)
{
    struct lane_replay **at = takers_replay(p);
    return at ? *at : NULL;
}

int replay_create(struct piece *p)
{
    struct lane_replay *r = arena_alloc(p->job->lane->options.arena, &p->job->account, sizeof *r);
    if (!r)
        return -ENOMEM;
    *takers_replay(p) = r;
    return 0;
}

void replay_free(struct piece *p)
{
    struct lane_replay *r = replay_of(p);
    if (!r)
        return;
    arena_free(p->job->lane->options.arena, &p->job->account, r);
    *takers_replay(p) = NULL;
}

struct piece *replay_learn(struct lane_job *job, const struct record_chosen *takers)
{
    list_for_each_entry (struct piece, p, &job->pieces, link) {
        struct lane_replay *r = replay_of(p);
        if (!r)
            continue;
        struct record_chosen *known = &r->takers[takers->round % ROUNDS_KNOWN];
        if (known->round < takers->round)
            *known = *takers;
        if (takers->reason == RECORD_REASON_REPLAY)
            r->last = takers->round;
        return p;
    }
    return NULL;
}

static bool replay_is_over(const struct lane_replay *r, uint64_t round)
{
    return r->last > 0 && round > r->last;
}

bool replay_decides(const struct piece *p)
{
    const struct lane_replay *r = replay_of(p);
    return r && !replay_is_over(r, p->round);
}

/* Returns the set of the open round; NULL: not known yet. */
static const struct record_chosen *replay_set(const struct piece *p)
{
    const struct record_chosen *set = &p->job->choices[p->round % CHOICES_PER_JOB];
    return set->round == p->round ? set : NULL;
}

/* Returns the takers of a round; NULL: not known, or the round is too old. */
static const struct record_chosen *replay_takers(const struct lane_replay *r, uint64_t round)
{
    const struct record_chosen *takers = &r->takers[round % ROUNDS_KNOWN];
    return takers->round == round ? takers : NULL;
}

static bool rank_is_there(const struct rank *rank)
{
    return rank->worker->state != WORKER_LEFT && rank->worker->state != WORKER_LOST;
}

/* Returns whether the takers of the last closed round have its results, or have left. */
static bool takers_have_landed(const struct piece *p, const struct lane_replay *r)
{
    uint64_t round = p->round - 1;
    const struct record_chosen *takers = replay_takers(r, round);
    if (round == 0)
        return true;
    for (uint32_t i = 0; takers && i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        bool takes = round_set_count(takers, rank->worker->number) > 0;
        if (takes && rank_is_there(rank) && !takers_holds(rank, round))
            return false;
    }
    return takers;
}

bool replay_allows(struct piece *p)
{
    const struct record_chosen *set = replay_set(p);
    if (!replay_decides(p))
        return true;
    if (!set || !takers_have_landed(p, replay_of(p)))
        return false;
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        if (round_set_count(set, rank->worker->number) > 0 && !quorum_waiting(p, rank))
            return false;
    }
    return true;
}

bool replay_takes(const struct piece *p, const struct rank *rank)
{
    const struct record_chosen *set = replay_set(p);
    return !set || !replay_decides(p) || round_set_count(set, rank->worker->number) > 0;
}

bool replay_is_hopeless(const struct piece *p, uint32_t *ret_left)
{
    const struct record_chosen *set = replay_set(p);
    for (uint32_t i = 0; replay_decides(p) && i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        uint32_t number = rank->worker->number;
        bool is_needed = set ? round_set_count(set, number) > 0 : number == 0;
        if (rank_is_there(rank) || !is_needed)
            continue;
        *ret_left = rank->worker->number;
        return true;
    }
    return false;
}

/* ---- answers ---- */

static bool replay_is_taker(const struct lane_replay *r, const struct rank *rank, uint64_t round)
{
    const struct record_chosen *takers = replay_takers(r, round);
    return takers && round_set_count(takers, rank->worker->number) > 0;
}

/* If lanes only sum, a late rank gets an answer at once. The rank applies each missed sum in order,
 * so an early answer changes no bit of its parameters. A later answer could stop the job, because
 * the open round may wait for this rank. If a rank has given up its gradient of a round, the answer
 * waits for the close of this round, because a second gradient of the round would use another batch
 * than in the recording. */
bool replay_answers_late(const struct rank *rank, uint64_t *ret_round)
{
    const struct lane_replay *r = replay_of(rank->piece);
    uint64_t newest = rank->piece->round - 1;
    if (!r || replay_is_over(r, newest + 1))
        return true;
    *ret_round = newest;
    bool is_closed = rank->late->round <= newest;
    return is_closed && (rank->piece->terms.lag > 0 || replay_is_taker(r, rank, newest));
}

/* If lanes update parameters, a rank fetches only the results of the round that the recording
 * names. If lanes only sum, the rank fetches all missed sums up to the recorded round. */
bool replay_answers_report(const struct rank *rank, uint64_t landed, uint64_t *ret_round)
{
    const struct lane_replay *r = replay_of(rank->piece);
    uint64_t newest = rank->piece->round - 1;
    if (!r)
        return true;
    bool is_whole = rank->piece->terms.lag == 0 && !replay_is_over(r, newest + 1);
    bool is_final = landed != RECORD_ROUND_NONE && (is_whole || replay_is_taker(r, rank, landed));
    if (!is_final && replay_is_over(r, newest + 1))
        return true;
    *ret_round = is_final ? landed : newest;
    if (rank->piece->terms.lag > 0)
        return is_final || landed < newest;
    return is_final || replay_is_taker(r, rank, newest);
}
