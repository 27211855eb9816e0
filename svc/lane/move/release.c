/* Releases pieces while their job trains. A released piece completes the round that has begun, and
 * begins no other round. "Frozen" is not a separate state: a released piece without a round in
 * progress is frozen. A piece is thawed only on request. RULES.md: A26, A38; M3 of migrator. */
#include "svc/lane/move/release.h"

#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/round/standing.h"
#include "svc/lane/state/parameters.h"

#include <errno.h>

/* Finds a piece. Returns NULL if the lane does not have the piece, or has dropped the piece and
 * only completes its last round. */
static struct piece *find(struct lane_job *job, uint32_t id)
{
    struct piece *p = job ? piece_find(job, id) : NULL;
    return p && !p->is_dropped ? p : NULL;
}

static int find_all(struct lane_job *job, const uint32_t *pieces, size_t count)
{
    if (!job)
        return -ENOENT;
    if (job->failure)
        return -ECONNABORTED;
    for (size_t i = 0; i < count; i++) {
        if (!find(job, pieces[i]))
            return -ENOENT;
    }
    return 0;
}

/* ---- the time of the release ---- */

/* Longest wait for a good time for the release. The wait also ends if a piece does not begin a
 * round within twice the usual time (expected_ns()). */
#define WISH_NS_MAX (2 * NS_PER_S)

static uint64_t expected_ns(const struct piece *p)
{
    return p->gap_ns > 0 ? p->begun_ns + 2 * p->gap_ns : 0;
}

int lane_wish(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count,
              uint64_t now_ns, struct lane_wish *ret_wish)
{
    struct lane_job *job = job_find(lane, job_id);
    int error = find_all(job, pieces, count);
    if (error < 0)
        return error;
    struct lane_wish wish = {0};
    for (size_t i = 0; i < count; i++) {
        struct piece *p = find(job, pieces[i]);
        wish.rounds += p->round;
        wish.until_ns = expected_ns(p) > wish.until_ns ? expected_ns(p) : wish.until_ns;
        piece_wish(p, true);
    }
    if (wish.until_ns > now_ns + WISH_NS_MAX)
        wish.until_ns = now_ns + WISH_NS_MAX;
    *ret_wish = wish;
    return 0;
}

static bool is_wanted(const struct piece *p) { return p->is_held || p->is_wished; }

/* Returns whether every announcement of the piece has been answered. */
static bool is_idle(const struct piece *p)
{
    return p->state == PIECE_COLLECTING && p->announced == 0 && p->late == 0;
}

/* Combined state of the rounds of several pieces. */
struct phase {
    uint64_t rounds; /* sum of the rounds over the pieces */
    /* earliest and latest beginning of the pieces' newest rounds; longest usual time between two
     * rounds */
    uint64_t first_ns, last_ns, gap_ns;
    bool is_idle;
};

static struct phase phase_of(struct lane_job *job, const uint32_t *pieces, size_t count)
{
    struct phase phase = {.first_ns = UINT64_MAX, .is_idle = true};
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = find(job, pieces[i]);
        phase.rounds += p->round;
        phase.is_idle = phase.is_idle && is_idle(p);
        phase.first_ns = p->begun_ns < phase.first_ns ? p->begun_ns : phase.first_ns;
        phase.last_ns = p->begun_ns > phase.last_ns ? p->begun_ns : phase.last_ns;
        phase.gap_ns = p->gap_ns > phase.gap_ns ? p->gap_ns : phase.gap_ns;
    }
    return phase;
}

/* Returns whether the pieces are between two iterations. In the middle of an iteration, some piece
 * began its last round nearly one iteration ago. The function compares times, because pieces may
 * have had different numbers of rounds before: broadcasts count, too. */
static bool is_behind_all(const struct phase *phase)
{
    return phase->is_idle && phase->last_ns - phase->first_ns <= phase->gap_ns / 4 * 3;
}

int lane_may_release(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count,
                     const struct lane_wish *wish, uint64_t now_ns)
{
    struct lane_job *job = job_find(lane, job_id);
    int error = lane_is_releasing(lane, job_id, pieces, count);
    if (error < 0 || now_ns >= wish->until_ns)
        return error < 0 ? error : 1;
    struct phase phase = phase_of(job, pieces, count);
    return phase.rounds > wish->rounds && is_behind_all(&phase);
}

/* ---- the release ---- */

/* Returns whether the piece is between two sets of ranks (A41). Some of the new ranks have not
 * reported their standing, so the lane does not know the round after its stored state. */
static bool is_between(const struct piece *p)
{
    return p->is_regrouped && p->round == 0 && !p->failure && (p->parameters || p->kept);
}

int lane_may_leave(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = find(job, pieces[i]);
        if (p && is_between(p))
            return -EAGAIN;
    }
    return 0;
}

/* Returns whether the state of the piece may exist only in a replica that the lane has not read
 * yet. Such a piece cannot move, because a move changes the replica holder. */
static bool is_unread(const struct piece *p)
{
    const struct parameters *q = p->parameters;
    return q && q->holder && !q->are_set && p->round == 0 && p->elements > 0 && !p->failure;
}

int lane_may_move(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = find(job, pieces[i]);
        if (p && is_unread(p))
            return -EAGAIN;
    }
    return 0;
}

int lane_release(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    int error = find_all(job, pieces, count);
    if (error < 0)
        return error;
    for (size_t i = 0; i < count; i++)
        piece_hold(find(job, pieces[i]));
    return 0;
}

int lane_is_releasing(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    if (job && job->failure)
        return -ECONNABORTED;
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = find(job, pieces[i]);
        if (!p || !is_wanted(p))
            return -ECANCELED;
    }
    return 0;
}

size_t lane_rested(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    size_t rested = 0;
    while (rested < count) {
        const struct piece *p = find(job, pieces[rested]);
        if (!p || !piece_is_frozen(p))
            break;
        rested++;
    }
    return rested;
}

static void thaw(struct piece *p)
{
    piece_wish(p, false);
    if (!p->is_held)
        return;
    p->is_held = false;
    round_resume(p);
}

void lane_thaw(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    for (size_t i = 0; i < count; i++) {
        struct piece *p = find(job, pieces[i]);
        if (p)
            thaw(p);
    }
}
