/* Snapshot of a job in training. The tensors with update rules stop between the same two iterations
 * (align.c), are read (read.c), and then continue with their rounds. Owns struct saving. Every
 * released piece is served again afterwards. RULES.md: K47. */
#include "svc/coordinator/snapshot/snapshot.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/job/claim.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/snapshot/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* longest time between two requests of the caller while the job is stopped */
#define SILENCE_NS (5 * NS_PER_S)
#define STANDS_NS (20 * NS_PER_S) /* longest time for which the job is stopped */

/* --- lookup --- */

struct saving *saving_find(struct service *s, uint64_t id)
{
    list_for_each_entry (struct saving, sv, &s->works->savings, link)
        if (sv->id == id)
            return sv;
    return NULL;
}

struct saving *saving_of(const struct job *job)
{
    list_for_each_entry (struct saving, sv, &job->service->works->savings, link)
        if (sv->job == job->id && sv->state != SAVING_BROKEN)
            return sv;
    return NULL;
}

/* --- the end --- */

void saving_free(struct saving *sv)
{
    struct job *job = sv->are_released ? jobs_find_id(sv->service, sv->job) : NULL;
    if (job)
        job_unclaim(job, CLAIM_SNAPSHOT);
    timer_stop(&sv->timer);
    list_remove(&sv->link);
    saving_forget_batch(sv);
    free(sv->wanted);
    free(sv->tensors);
    free(sv->pieces);
    free(sv);
}

size_t saving_gather(const struct saving *sv, const struct job *job, uint32_t lane,
                     uint32_t *ret_at)
{
    size_t count = 0;
    for (uint32_t i = 0; i < sv->pieces_count; i++) {
        const struct saved_piece *p = &sv->pieces[i];
        if (p->lane == lane && jobs_piece(job, p->piece, NULL))
            ret_at[count++] = i;
    }
    return count;
}

static void thaw(const struct saving *sv, struct job *job, struct lane *lane)
{
    _cleanup_free_ uint32_t *pieces = calloc(sv->pieces_count + 1, sizeof *pieces);
    if (!pieces && lane->aggregator->peer)
        /* after the reconnect, the lane's pieces are compared with the store (K9) */
        peer_break(lane->aggregator->peer);
    size_t count = pieces ? saving_gather(sv, job, lane->id, pieces) : 0;
    for (size_t i = 0; i < count; i++)
        pieces[i] = sv->pieces[pieces[i]].piece;
    if (count > 0)
        telling_thaw(lane, job->id, pieces, count);
}

void saving_let_go_on(struct saving *sv)
{
    struct job *job = jobs_find_id(sv->service, sv->job);
    for (size_t i = 0; job && sv->are_released && i < job->shares_count; i++)
        thaw(sv, job, job->shares[i].lane);
    if (job && !sv->is_between && (sv->state == SAVING_HOLDS || sv->state == SAVING_RESTS))
        holding_end(job);
    if (job && sv->state == SAVING_STANDS)
        log_info("job %s: %zu tensors were held after round %" PRIu64 " for %.1f ms, for a "
                 "snapshot",
                 job->name, sv->tensors_count, sv->pieces[0].round,
                 (double)(clock_now_ns() - sv->stood_ns) / NS_PER_MS);
    if (job && sv->are_released)
        job_unclaim(job, CLAIM_SNAPSHOT);
    sv->are_released = false;
    sv->turn++;
}

void saving_break(struct saving *sv, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sv->why.text, sizeof sv->why.text, format, arguments);
    va_end(arguments);
    sv->why.code = code;
    saving_forget_batch(sv);
    saving_let_go_on(sv);
    sv->state = SAVING_BROKEN;
    saving_await(sv);
    if (!sv->request)
        return;
    peer_fail(sv->peer, sv->request, code, "%s", sv->why.text);
    saving_free(sv);
}

static void was_silent(struct timer *timer)
{
    struct saving *sv = container_of(timer, struct saving, timer);
    if (sv->state == SAVING_BROKEN)
        return saving_free(sv);
    saving_break(
        sv, -ETIMEDOUT,
        "the reader of the snapshot requested no further part for %u s; start the snapshot again",
        (unsigned)(SILENCE_NS / NS_PER_S));
}

void saving_await(struct saving *sv)
{
    timer_stop(&sv->timer);
    timer_init(&sv->timer, was_silent);
    timer_start(sv->service->loop, &sv->timer, clock_now_ns() + SILENCE_NS);
}

bool saving_takes_long(struct saving *sv)
{
    if (clock_now_ns() - sv->stood_ns < STANDS_NS)
        return false;
    saving_break(
        sv, -ETIMEDOUT,
        "the snapshot was not read within %u s, and the held tensors continue: the reader or its "
        "disk is slow, or the tensors are too large; call gp_job_snapshot() in the script",
        (unsigned)(STANDS_NS / NS_PER_S));
    return true;
}

static bool is_on(const struct saving *sv, const struct aggregator *a)
{
    for (size_t i = 0; i < sv->pieces_count; i++)
        for (size_t k = 0; k < a->lanes_count; k++)
            if (sv->pieces[i].lane == a->lanes[k].id)
                return true;
    return false;
}

void saving_aggregator_gone(const struct aggregator *a)
{
    list_for_each_safe_entry (struct saving, sv, &a->service->works->savings, link) {
        if (sv->are_released && is_on(sv, a))
            saving_break(sv, -ECONNRESET, "no snapshot: an aggregator has ended; try again");
    }
}

void saving_peer_gone(const struct peer *p)
{
    list_for_each_safe_entry (struct saving, sv, &p->service->works->savings, link) {
        if (sv->peer != p)
            continue;
        saving_let_go_on(sv);
        saving_free(sv);
    }
}

void saving_destroy(struct service *s)
{
    list_for_each_safe_entry (struct saving, sv, &s->works->savings, link)
        saving_free(sv);
}
