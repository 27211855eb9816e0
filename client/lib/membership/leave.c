/* A worker leaves its job, or all jobs of its client. The worker first informs the other processes,
 * then frees memory. Memory that lanes can access is freed only when every connection is closed. */
#include "client/lib/membership/internal.h"

#include "client/lib/job/request.h"
#include "client/lib/job/row_call.h"
#include "client/lib/job/tensor.h"
#include "client/lib/link/link.h"
#include "client/lib/report/timeline.h"
#include "client/lib/round/entry.h"
#include "client/lib/session/process.h"
#include "client/lib/sets/sets.h"
#include "client/lib/state/state.h"
#include "client/lib/steps/internal.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"

#include <errno.h>
#include <stdlib.h>

/* Longest time for each step of a leave. After this time the worker leaves without a goodbye. */
#define LEAVE_STEP_NS (1 * NS_PER_S)

void leave_free(struct gp_job *job)
{
    control_destroy(job->control);
    recorder_fini(job);
    sets_close(job);
    pthread_mutex_destroy(&job->declaring);
    pthread_mutex_destroy(&job->lock);
    tensor_table_fini(job);
    steps_free(job);
    entry_free(job);
    free(job->slots);
    free(job);
}

/* Ends the job's sockets and threads, and only then removes the job from the list for forks
 * (L8). */
void leave_close(struct gp_job *job)
{
    if (job->control)
        control_stop(job->control);
    engine_stop(&job->engine);
    fork_forget(job);
}

/* Returns whether every other rank has the results that this worker has. If this worker left
 * earlier, the service would treat the leave as a loss, and the other ranks would repeat the last
 * round without this worker. In an elastic job also the kept rounds must be committed. */
static bool is_settled(void *context)
{
    struct gp_job *job = context;
    if (job->failure.code)
        return true;
    for_each_tensor (t, job) {
        bool has_kept = t->has_kept && job->is_elastic;
        if (has_kept || (t->without_commit > 0 && t->without_result == 0))
            return false;
    }
    return true;
}

/* The tensors, with the newest committed round of each tensor. */
struct settled {
    uint32_t *tensors;
    uint64_t *rounds;
    size_t count;
};

/* Returns the newest round of the tensor that all ranks are known to have; 0: unknown. While a
 * round is open, this is the round before, except if that one is kept. */
static uint64_t tensor_settled(const struct gp_tensor *t)
{
    if (t->failure.code || t->has_kept || t->round == 0)
        return 0;
    return t->without_commit == 0 ? t->round : t->round - 1;
}

/* Lists the newest committed round of each tensor. Without memory the list is empty; a rank that
 * has not received a COMMIT then repeats the round without this worker. */
static struct settled settled_of(struct gp_job *job)
{
    struct settled settled = {0};
    size_t count = 0;
    if (!job->is_elastic)
        return settled;
    for_each_tensor (t, job)
        count++;
    settled.tensors = calloc(count + 1, sizeof *settled.tensors);
    settled.rounds = calloc(count + 1, sizeof *settled.rounds);
    if (!settled.tensors || !settled.rounds)
        return settled;
    for_each_tensor (t, job) {
        uint64_t round = tensor_settled(t);
        if (round == 0)
            continue;
        settled.tensors[settled.count] = t->id;
        settled.rounds[settled.count++] = round;
    }
    return settled;
}

static void settled_free(struct settled *settled)
{
    free(settled->tensors);
    free(settled->rounds);
}

/* Returns whether every push of a clock that this rank has ended is applied. Other ranks may end
 * the clock later; if this rank left before, the job would fail. */
static bool rows_are_settled(void *context)
{
    const struct gp_job *job = context;
    return job->failure.code || row_calls_are_settled(job);
}

static bool is_unused(void *context)
{
    const struct gp_job *job = context;
    return job->users == 0;
}

static bool is_disconnected(void *context)
{
    const struct gp_job *job = context;
    return job->engine.shm_conns == 0 && job->engine.ofi_conns == 0;
}

static void cancel_requests(struct gp_job *job)
{
    job_break(job, -ECANCELED, "rank %u left job '%s'", job->rank, job->name);
    list_for_each_entry (struct gp_request, q, &job->requests, node) {
        if (!q->err.code) /* the result has arrived, but no gp_wait() has ended the request */
            err_set(&q->err, -ECANCELED, "rank %u left job '%s'", job->rank, job->name);
    }
    engine_kick(&job->engine);
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, is_unused, job);
}

static bool goodbyes_are_said(void *context)
{
    struct gp_job *job = context;
    for_each_link (l, job)
        if (link_owes_goodbye(l))
            return false;
    return true;
}

static void disconnect(struct gp_job *job)
{
    for_each_link (l, job)
        link_say_goodbye(l);
    engine_flush(&job->engine);
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, goodbyes_are_said, job);
    for_each_link (l, job)
        link_close(l);
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, is_disconnected, job);
}

static void say_leave(struct gp_job *job, const struct settled *settled, bool has_failed)
{
    struct err ignored;
    if (control_is_up(job->control))
        (void)control_ask(job->control,
                          &MESSAGE(0, LEAVE_REQUEST, leave_request, .tensors = settled->tensors,
                                   .n_tensors = settled->count, .committed = settled->rounds,
                                   .n_committed = settled->count, .failed = has_failed),
                          clock_now_ns() + LEAVE_STEP_NS, &ignored);
}

/* Separates the job from the requests that callers still have, unless a call uses the job.
 * Afterwards gp_wait() finds no job in such a request (L14). */
static bool try_abandon(void *context)
{
    struct gp_job *job = context;
    pthread_mutex_lock(&job->client->lock);
    bool can = job->users == 0;
    list_for_each_safe (node, &job->requests) {
        if (can)
            request_abandon(list_entry(node, struct gp_request, node));
    }
    pthread_mutex_unlock(&job->client->lock);
    return can;
}

/* Separates the job from all requests, and frees the spare ones. The job has failed, so the
 * calls that still run only finish copies of results. */
static void abandon_requests(struct gp_job *job)
{
    pthread_mutex_lock(&job->lock);
    while (!engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, try_abandon, job))
        log_warn("job '%s' rank %u: gp_job_leave() was called while another thread copied a "
                 "result; end all gp_wait() calls before",
                 job->name, job->rank);
    pthread_mutex_unlock(&job->lock);
    list_for_each_safe_entry (struct gp_request, q, &job->pool, node)
        free(q);
}

static void release_all(struct gp_job *job)
{
    abandon_requests(job);
    list_for_each_safe_entry (struct gp_tensor, t, &job->tensors, node)
        tensor_remove(t);
    job_tables_free(job);
    engine_fini(&job->engine);
    list_for_each_safe_entry (struct link, l, &job->links, node)
        link_free(l);
    slabs_fini(&job->slabs);
    leave_free(job);
}

static void leave(struct gp_job *job, bool has_failed)
{
    if (!job || generation_is_foreign(job->client->generation))
        return;
    pthread_mutex_lock(&job->client->lock);
    list_remove(&job->node);
    pthread_mutex_unlock(&job->client->lock);
    job_timeline_end(job);
    pthread_mutex_lock(&job->lock);
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, is_settled, job);
    engine_run(&job->engine, clock_now_ns() + job->client->timeout_ns, rows_are_settled, job);
    struct settled settled = settled_of(job);
    job->is_leaving = true;
    state_cancel_read(job);
    cancel_requests(job);
    disconnect(job);
    pthread_mutex_unlock(&job->lock);
    say_leave(job, &settled, has_failed);
    settled_free(&settled);
    leave_close(job);
    release_all(job);
}

void gp_job_leave(gp_job *job) { leave(job, false); }

void gp_job_leave_failed(gp_job *job) { leave(job, true); }

void gp_disconnect(gp_client *client)
{
    if (!client || generation_is_foreign(client->generation))
        return;
    struct list *node;
    while ((node = list_first(&client->jobs)))
        gp_job_leave(list_entry(node, struct gp_job, node));
    list_for_each_safe_entry (struct gp_request, q, &client->abandoned, node)
        free(q);
    client_free(client);
}
