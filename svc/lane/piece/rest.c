/* Freezes pieces: a held piece at once, and a piece with an open round after this round. RULES.md:
 * A26, A38. */
#include "svc/lane/piece/rest.h"

#include "svc/lane/job/table.h"

#include <errno.h>

/* Drops payloads for later rounds, because the time and the lane of these rounds are unknown. The
 * lane of such a round reads the inputs from the workers (W6). */
static void drop_payloads(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        announcement_drop_payload(rank->worker, &rank->said[0]);
        announcement_drop_payload(rank->worker, &rank->said[1]);
    }
}

void release_tell(const struct lane *lane)
{
    const struct lane_options *options = &lane->options;
    if (options->moving_news)
        options->moving_news(options->context);
}

void piece_rest(struct piece *p)
{
    drop_payloads(p);
    release_tell(p->job->lane);
}

void piece_wish(struct piece *p, bool is_wished)
{
    p->job->wished += is_wished;
    p->job->wished -= p->is_wished;
    p->is_wished = is_wished;
}

void release_note(struct lane_job *job)
{
    if (job->wished > 0 && job->ending.at_work == 0)
        release_tell(job->lane);
}

void piece_hold(struct piece *p)
{
    piece_wish(p, false);
    if (p->is_held)
        return;
    p->is_held = true;
    if (piece_is_frozen(p))
        drop_payloads(p);
}

int piece_find_frozen(struct lane *lane, uint32_t job_id, uint32_t id, struct piece **ret_piece)
{
    struct lane_job *job = job_find(lane, job_id);
    struct piece *p = job ? piece_find(job, id) : NULL;
    if (!p || p->is_dropped)
        return -ENOENT;
    if (job->failure)
        return -ECONNABORTED;
    if (!piece_is_frozen(p))
        return -EBUSY;
    *ret_piece = p;
    return 0;
}
