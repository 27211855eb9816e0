/* Ranks whose memory delays a round. Counts the operations posted to each worker, and records the
 * time of the last completion. RULES.md: A79. */
#include "svc/lane/chunk/stuck.h"

#include "svc/base/clock.h"
#include "svc/lane/job/table.h"
#include "svc/lane/worker/serving.h"

#include <stdio.h>

#define SILENCE_NS NS_PER_S

void stuck_posted(struct worker *w, uint32_t count)
{
    if (count > 0 && w->posted == 0)
        w->answered_ns = w->job->lane->now_ns;
    w->posted += count;
}

void stuck_done(struct worker *w)
{
    /* an operation of the worker's former connection completes here, too, but is not in `posted` */
    w->posted -= w->posted > 0;
    w->answered_ns = w->job->lane->now_ns;
}

bool stuck_is(const struct worker *w, uint64_t now_ns)
{
    return w->conn && w->posted > 0 && now_ns > w->answered_ns + SILENCE_NS;
}

bool stuck_holds(const struct piece *p, const struct rank *rank, uint64_t now_ns)
{
    return p->chunks_active > 0 && stuck_is(rank->worker, now_ns);
}

/* Returns a worker outside the round's set whose result has been posted for too long without a
 * completion; NULL: there is no such worker. The release of the piece waits for this write. */
static const struct worker *stuck_taker(const struct piece *p, uint64_t now_ns)
{
    const struct rank *rank;
    uint64_t since_ns;
    bool is_long = serving_writes(p, &rank, &since_ns) && now_ns > since_ns + SILENCE_NS;
    return is_long ? rank->worker : NULL;
}

static const struct worker *holder_of(const struct piece *p, uint64_t now_ns)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (stuck_holds(p, &p->ranks[i], now_ns))
            return p->ranks[i].worker;
    }
    return stuck_taker(p, now_ns);
}

bool lane_stuck(struct lane *lane, uint32_t job_id, const uint32_t *pieces, size_t count,
                char *text, size_t room)
{
    struct lane_job *job = job_find(lane, job_id);
    uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; job && i < count; i++) {
        const struct piece *p = piece_find(job, pieces[i]);
        const struct worker *w = p ? holder_of(p, now_ns) : NULL;
        if (!w)
            continue;
        snprintf(
            text, room,
            "lane %u waits for rank %u of job %s (%s): its memory does not answer, its process "
            "may be stopped; continue or end it",
            lane->options.id, w->number, job->name, w->peer);
        return true;
    }
    return false;
}
