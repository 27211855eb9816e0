/* Changes the number of workers of a job: sends the request to the coordinator, then waits until
 * ranks and lanes have changed (L29). */
#include "client/lib/job/tensor.h"
#include "client/lib/round/entry.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"
#include "svc/base/text.h"

#include <errno.h>
#include <string.h>

#define RANKS_NAMED_MAX 16

struct resizing {
    struct gp_job *job;
    uint32_t workers;
    uint32_t version; /* version of the membership before the request */
};

static int ask(const struct resizing *z, uint64_t deadline_ns, int timeout_ms)
{
    struct err refusal = {0};
    if (control_ask(z->job->control,
                    &MESSAGE(0, RESIZE_REQUEST, resize_request, .workers = z->workers), deadline_ns,
                    &refusal) < 0)
        return client_error(-ETIMEDOUT,
                            "gp_job_resize: the coordinator at %s has not answered after %d ms. "
                            "Look at `gradpool serve` there, or raise timeout_ms",
                            z->job->client->endpoint_text, timeout_ms);
    return refusal.code ? client_error_from(&refusal) : 0;
}

/* Returns whether the resize waits until `rank` has joined or left. The resize does not wait for
 * its own caller, which leaves by gp_job_leave(). */
static bool is_awaited(const struct resizing *z, uint32_t rank)
{
    bool is_in = ranks_have(z->job->membership.ranks, rank);
    return rank < z->workers ? !is_in : is_in && rank != z->job->rank;
}

/* Returns whether rounds of the tensor still have other ranks than the job (L29). */
static bool lags_behind(const struct gp_tensor *t)
{
    bool is_ours = strncmp(t->name, NAME_RESERVED, strlen(NAME_RESERVED)) == 0;
    if (!t->knows_ranks || t->failure.code || is_ours || !terms_are_for_all(&t->terms))
        return false;
    return memcmp(t->ranks, t->job->membership.ranks, sizeof t->ranks) != 0;
}

static const struct gp_tensor *find_lagging(const struct gp_job *job)
{
    for_each_tensor (t, job) {
        if (lags_behind(t))
            return t;
    }
    return NULL;
}

/* Returns whether a later resize has replaced this one. The coordinator informs all ranks of a
 * resize before its reply, so a different number of workers is that of a later resize. */
static bool is_superseded(const struct resizing *z)
{
    const gp_membership *m = &z->job->membership;
    return m->version > z->version && m->wanted != z->workers;
}

static bool is_done(void *context)
{
    const struct resizing *z = context;
    if (z->job->failure.code || is_superseded(z))
        return true;
    if (z->job->membership.wanted != z->workers)
        return false;
    for (uint32_t rank = 0; rank < z->job->workers; rank++) {
        if (is_awaited(z, rank))
            return false;
    }
    return !find_lagging(z->job);
}

static int say_what_lags(const struct resizing *z, const struct gp_tensor *t, int timeout_ms)
{
    for (uint32_t rank = 0; rank < z->job->workers; rank++) {
        if (ranks_have(z->job->membership.ranks, rank) && !ranks_have(t->ranks, rank))
            return client_error(
                -ETIMEDOUT,
                "job '%s' with %u workers: rank %u has joined, but has not declared tensor '%s', "
                "or has not begun a step, within %d ms; look at that rank, or raise timeout_ms",
                z->job->name, z->workers, rank, t->name, timeout_ms);
    }
    return client_error(-ETIMEDOUT,
                        "job '%s' with %u workers: the lanes of tensor '%s' have not confirmed the "
                        "change within %d ms; call gp_job_resize() again",
                        z->job->name, z->workers, t->name, timeout_ms);
}

static int say_who_is_late(const struct resizing *z, int timeout_ms)
{
    char text[ERR_TEXT_BYTES] = "";
    uint32_t named = 0;
    for (uint32_t rank = 0; rank < z->job->workers && named < RANKS_NAMED_MAX; rank++) {
        if (is_awaited(z, rank))
            text_append(text, sizeof text, "%s%u (%s)", named++ ? ", " : "", rank,
                        rank < z->workers ? "has not joined" : "has not left");
    }
    const struct gp_tensor *lagging = named ? NULL : find_lagging(z->job);
    if (lagging)
        return say_what_lags(z, lagging, timeout_ms);
    return client_error(-ETIMEDOUT,
                        "job '%s' is not yet resized to %u workers after %d ms: rank %s; look at "
                        "these ranks, or raise timeout_ms",
                        z->job->name, z->workers, timeout_ms, text);
}

static int await_resized(struct resizing *z, uint64_t deadline_ns, int timeout_ms)
{
    struct gp_job *job = z->job;
    bool done = engine_run(&job->engine, deadline_ns, is_done, z);
    if (job->failure.code)
        return client_error_from(&job->failure);
    if (is_superseded(z))
        return client_error(
            -ECANCELED,
            "job '%s': the resize to %u workers was replaced by another rank's resize to %u",
            job->name, z->workers, job->membership.wanted);
    return done ? 0 : say_who_is_late(z, timeout_ms);
}

int gp_job_resize(gp_job *job, uint32_t workers, int timeout_ms)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    struct resizing z = {.job = job, .workers = workers};
    if (timeout_ms <= 0)
        timeout_ms = (int)(job->client->timeout_ns / NS_PER_MS);
    uint64_t deadline_ns = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    job->users++;
    pthread_mutex_lock(&job->lock);
    z.version = job->membership.version;
    pthread_mutex_unlock(&job->lock);
    error = ask(&z, deadline_ns, timeout_ms);
    pthread_mutex_lock(&job->lock);
    if (error == 0) {
        hold_note_standing(job, true);
        /* if this rank has not entered the job, the resize also waits for its entry */
        entry_ask(job);
        error = await_resized(&z, deadline_ns, timeout_ms);
        hold_note_standing(job, false);
    }
    job_end_use(job);
    return error;
}
