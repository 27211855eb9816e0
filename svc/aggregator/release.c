/* Letting go of pieces while their job trains: a piece that is released finishes the round that has
 * begun and begins no other. Frozen is not a state of its own, but a piece that is held and has
 * nothing under way. It never thaws by itself. README: A26; M3 of migrator. */
#include "svc/aggregator/release.h"
#include "svc/aggregator/lane_types.h"

#include <errno.h>

static bool is_frozen(const struct piece *p) { return p->is_held && p->state == PIECE_COLLECTING; }

/* What waits is read again when its round comes, here or elsewhere: nobody knows when (W6). */
static void drop_payloads(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        announcement_drop_payload(rank->worker, &rank->said[0]);
        announcement_drop_payload(rank->worker, &rank->said[1]);
    }
}

void piece_rest(struct piece *p)
{
    const struct lane_options *options = &p->job->lane->options;
    drop_payloads(p);
    if (options->piece_rested)
        options->piece_rested(options->context);
}

static void hold(struct piece *p)
{
    if (p->is_held)
        return;
    p->is_held = true;
    if (is_frozen(p))
        drop_payloads(p);
}

/* NULL: not here any more, even if it has a round to finish. */
static struct piece *find(struct lane_job *job, uint32_t id)
{
    struct piece *p = job ? piece_find(job, id) : NULL;
    return p && !p->is_dropped ? p : NULL;
}

int lane_release(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    if (!job)
        return -ENOENT;
    if (job->failure)
        return -ECONNABORTED;
    for (size_t i = 0; i < count; i++) {
        if (!find(job, pieces[i]))
            return -ENOENT;
    }
    for (size_t i = 0; i < count; i++)
        hold(find(job, pieces[i]));
    return 0;
}

int lane_is_releasing(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    if (job && job->failure)
        return -ECONNABORTED;
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = find(job, pieces[i]);
        if (!p || !p->is_held)
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
        if (!p || !is_frozen(p))
            break;
        rested++;
    }
    return rested;
}

static void thaw(struct piece *p)
{
    if (!p->is_held)
        return;
    p->is_held = false;
    if (p->round == 0 && p->spoken > 0 && !p->failure)
        round_recover(p);
    else
        round_go_on(p);
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

int piece_find_frozen(struct lane *lane, uint32_t job_id, uint32_t id, struct piece **ret_piece)
{
    struct lane_job *job = job_find(lane, job_id);
    struct piece *p = find(job, id);
    if (!p)
        return -ENOENT;
    if (job->failure)
        return -ECONNABORTED;
    if (!is_frozen(p))
        return -EBUSY;
    *ret_piece = p;
    return 0;
}
