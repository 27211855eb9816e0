/* Pools: their connections, their jobs, and the comparison of a joining pool's workers with the
 * stored orders. No message names a program: a pool starts the program of its own user (SL1). */
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/peer/visitors.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the end of a connection --- */

void slots_peer_gone(struct peer *p)
{
    struct slots *slots = p->service->works->slots;
    struct slots_pool *pool = slots ? slots_pool_of(p) : NULL;
    if (slots)
        slots_watches_forget(slots, p);
    if (!pool)
        return;
    pool->peer = NULL;
    if (!slots_pool_has_jobs(pool))
        return slots_pool_free(pool);
    slots_pool_await(pool);
}

/* --- join --- */

static bool slots_join_is_valid(struct peer *p, uint64_t request, const WIRE(PoolJoin) * join)
{
    const struct service *s = p->service;
    const struct slots_site *site = slots_find_site(s, join->site);
    if (s->phase != SERVICE_UP)
        peer_fail(p, request, -ESHUTDOWN, "gradpool serve is stopping");
    else if (p->session || slots_pool_of(p))
        peer_fail(p, request, -EINVAL,
                  "this connection belongs to a worker or a pool already; open another connection "
                  "for another pool");
    else if (join->pool == 0 || !text_is_node(join->node) || !*join->node)
        peer_fail(p, request, -EINVAL,
                  "a pool joins with a number other than 0 and the name of its host; install the "
                  "same version of gradpool on both hosts");
    else if (join->n_workers > SLOTS_LISTED_MAX)
        peer_fail(p, request, -EINVAL, "a pool has at most %d workers; this one has %zu",
                  SLOTS_LISTED_MAX, join->n_workers);
    else if (!p->is_local && !channel_tenant(p->channel) && !s->options->insecure &&
             tenants_have_keys(p->service))
        peer_fail(p, request, -ENOKEY,
                  "a pool needs a key, because the service has tenants; set GRADPOOL_KEY_FILE to a "
                  "file with a key from `gradpool tenant add`");
    else if (!site || site->count == 0)
        peer_fail(p, request, -ENOENT,
                  "site %.64s has no slots: ask the operator to start the service with "
                  "--worker-slots %.64s=N, or name another site with --site",
                  text_is_node(join->site) ? join->site : "?",
                  text_is_node(join->site) ? join->site : "SITE");
    else
        return true;
    return false;
}

/* Returns whether the pool may join. A pool may connect again before the coordinator detects the
 * end of the old connection. Another process with the same number is refused, because two pools
 * would use one folder. */
static bool slots_pool_is_free(struct peer *p, uint64_t request, const WIRE(PoolJoin) * join,
                               const struct slots_pool *pool)
{
    char name[SLOTS_TEXT_BYTES];
    if (strcmp(pool->site->name, join->site) != 0)
        peer_fail(p, request, -EINVAL,
                  "%s has jobs on site %s, not on %.64s; start it again with --site %s, or let "
                  "these jobs end first",
                  slots_pool_name(pool, name, sizeof name), pool->site->name, join->site,
                  pool->site->name);
    else if (pool->peer && (pool->pid != join->pid || strcmp(pool->node, join->node) != 0))
        peer_fail(
            p, request, -EEXIST,
            "%s runs in this folder already; stop that one, or start this pool in another folder",
            slots_pool_name(pool, name, sizeof name));
    else
        return true;
    return false;
}

/* Returns the rank of a reported worker if the stored order has the same incarnation. */
static struct slots_worker *slots_find_worker(const struct slots_pool *pool,
                                              const WIRE(PoolWorker) * of,
                                              struct slots_job **ret_job)
{
    struct slots_job *job = of ? slots_find_job(pool->service, pool->tenant, of->job) : NULL;
    if (!job || job->pool != pool || of->rank >= job->workers_max)
        return NULL;
    struct slots_worker *worker = &job->workers[of->rank];
    if (worker->state <= SLOTS_WANTED || worker->incarnation != of->incarnation)
        return NULL;
    *ret_job = job;
    return worker;
}

/* Marks the workers in the pool's list that have a stored order. Workers without a stored order are
 * stale. */
static void slots_mark_listed(struct slots_pool *pool, const WIRE(PoolJoin) * join,
                              WIRE(PoolWelcome) * welcome)
{
    struct slots_job *job;
    for (size_t i = 0; i < join->n_workers; i++) {
        struct slots_worker *worker = slots_find_worker(pool, join->workers[i], &job);
        if (worker)
            worker->is_listed = true;
        else
            welcome->stale[welcome->n_stale++] = join->workers[i];
    }
}

/* Compares a job's stored workers with the list of the joining pool. An order without a report is
 * sent again. A started worker that is not in the list has ended; after a Goodbye, the worker has
 * ended its training (SL4). */
static void slots_compare(struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++) {
        struct slots_worker *worker = &job->workers[rank];
        bool is_listed = worker->is_listed;
        worker->start_sent = worker->leave_sent = worker->is_listed = false;
        if (worker->state <= SLOTS_WANTED)
            continue;
        if (is_listed)
            slots_worker_found(job, rank);
        else if (worker->state >= SLOTS_STARTED || worker->is_leaving)
            slots_worker_gone(job, rank);
    }
}

/* Sends the answer to the pool's join. Returns false if memory is missing; the failure was then
 * sent. */
static bool slots_welcome(struct slots_pool *pool, uint64_t request, const WIRE(PoolJoin) * join)
{
    struct slots *slots = pool->service->works->slots;
    WIRE(PoolWelcome) welcome = MESSAGE_PART(PoolWelcome, pool_welcome, .slots = pool->site->count);
    welcome.stale = calloc(join->n_workers + 1, sizeof *welcome.stale);
    welcome.jobs = calloc(slots->jobs_count + 1, sizeof *welcome.jobs);
    bool has_memory = welcome.stale && welcome.jobs;
    if (has_memory) {
        slots_mark_listed(pool, join, &welcome);
        list_for_each_entry (struct slots_job, job, &slots->jobs, link)
            if (job->pool == pool)
                welcome.jobs[welcome.n_jobs++] = job->name;
        peer_send(pool->peer, &ENVELOPE(request, POOL_WELCOME, pool_welcome, &welcome));
    } else {
        peer_fail_memory(pool->peer, request);
    }
    free(welcome.stale);
    free(welcome.jobs);
    return has_memory;
}

static int slots_pool_attach(struct slots_pool *pool, struct peer *p, const WIRE(PoolJoin) * join)
{
    char *node = strdup(join->node);
    if (!node)
        return -ENOMEM;
    if (pool->peer)
        peer_break(pool->peer);
    free(pool->node);
    pool->node = node;
    pool->pid = join->pid;
    pool->peer = p;
    pool->is_held = pool->is_missing = false;
    timer_stop(&pool->away);
    visitors_forget(p); /* the connection of a pool is never closed to free a descriptor */
    return 0;
}

void slots_handle_join(struct peer *p, const envelope *message)
{
    const WIRE(PoolJoin) *join = message->pool_join;
    struct service *s = p->service;
    if (!slots_join_is_valid(p, message->id, join))
        return;
    struct slots_pool *pool = slots_pool_find(s, p->tenant, join->pool);
    if (pool && !slots_pool_is_free(p, message->id, join, pool))
        return;
    if (!pool)
        pool = slots_pool_create(slots_find_site(s, join->site), p->tenant, join->pool, join->node,
                                 join->pid);
    if (!pool || slots_pool_attach(pool, p, join) < 0)
        return peer_fail_memory(p, message->id);
    log_info("the pool on %s (pid %u) has joined site %s with %zu worker%s", pool->node, pool->pid,
             pool->site->name, join->n_workers, join->n_workers == 1 ? "" : "s");
    if (!slots_welcome(pool, message->id, join))
        return peer_finish(p); /* the pool joins again, and sends its list again */
    list_for_each_entry (struct slots_job, job, &s->works->slots->jobs, link) {
        if (job->pool != pool)
            continue;
        slots_compare(job);
        slots_rest_repeat(job);
        slots_job_hold(job);
    }
    slots_carry_out(pool->site);
}

/* --- jobs --- */

static bool slots_submit_is_valid(struct peer *p, uint64_t request, const WIRE(PoolSubmit) * submit)
{
    size_t bytes = strlen(submit->job);
    if (bytes < 1 || bytes > JOB_NAME_BYTES_MAX || !text_is_plain(submit->job))
        peer_fail(
            p, request, -EINVAL,
            "a submitted job needs a name of 1 to %d bytes of UTF-8, without quotes and control "
            "characters",
            JOB_NAME_BYTES_MAX);
    else if (strlen(submit->study) > JOB_NAME_BYTES_MAX || !text_is_plain(submit->study))
        peer_fail(
            p, request, -EINVAL,
            "job %s: a study's name has at most %d bytes of UTF-8, without quotes and control "
            "characters",
            submit->job, JOB_NAME_BYTES_MAX);
    else if (submit->workers < 1 || submit->workers > WORKERS_MAX ||
             submit->workers_max > WORKERS_MAX ||
             (submit->workers_max && submit->workers_max < submit->workers))
        peer_fail(p, request, -EINVAL,
                  "job %s: %u to %u workers; expected 1 to %d, and the least number first",
                  submit->job, submit->workers, submit->workers_max, WORKERS_MAX);
    else
        return true;
    return false;
}

/* Checks the number of jobs of the tenant: jobs in training, and jobs of pools without a worker
 * that has joined. Without this check one tenant could fill the queue of all tenants. */
static int slots_check_tenant(const struct service *s, const struct tenant *tenant, struct err *err)
{
    struct quota quota;
    char who[192];
    quota_of_tenant(s, tenant, &quota);
    tenant_title(tenant, who, sizeof who);
    list_for_each_entry (const struct slots_job, job, &s->works->slots->jobs, link)
        quota.used[LIMIT_TENANT_JOBS] += job->pool->tenant == tenant && !slots_training(job);
    return limits_check(&tenant->limits, LIMIT_TENANT_JOBS, who, quota.used[LIMIT_TENANT_JOBS], 1,
                        err);
}

static bool slots_name_is_free(struct peer *p, uint64_t request, const WIRE(PoolSubmit) * submit)
{
    struct service *s = p->service;
    const struct slots_job *same = slots_find_job(s, p->tenant, submit->job);
    uint32_t most = submit->workers_max ? submit->workers_max : submit->workers;
    char name[SLOTS_TEXT_BYTES];
    struct err err;
    if (same)
        peer_fail(p, request, -EEXIST,
                  "job %s was submitted by %s already; give this one another name", submit->job,
                  slots_pool_name(same->pool, name, sizeof name));
    else if (jobs_find(s, p->tenant, submit->job))
        peer_fail(p, request, -EEXIST,
                  "job %s trains already, with workers that no pool has started; give this one "
                  "another name",
                  submit->job);
    else if (s->works->slots->jobs_count >= SLOTS_JOBS_MAX)
        peer_fail(p, request, -EDQUOT, "%u jobs of pools are there, the most; wait for their ends",
                  s->works->slots->jobs_count);
    else if (quota_check_new_job(s, p->tenant, submit->job, most, &err) < 0 ||
             slots_check_tenant(s, p->tenant, &err) < 0 ||
             slots_check_watch(s, p->tenant, submit->job, 0, &err) < 0)
        peer_fail(p, request, err.code, "%s", err.text);
    else
        return true;
    return false;
}

static struct slots_job *slots_make_job(struct slots_pool *pool, const WIRE(PoolSubmit) * submit)
{
    uint32_t most = submit->workers_max ? submit->workers_max : submit->workers;
    struct slots_job *job =
        slots_job_create(pool, submit->job, submit->study, submit->workers, most);
    if (job) {
        job->steps = submit->steps;
        job->rest->may = submit->rests;
    }
    return job;
}

/* Stores the job before the scheduler gives it slots (K1). */
static int slots_submit(struct slots_job *job, uint32_t followers, struct err *err)
{
    struct service *s = job->pool->service;
    struct store_row row;
    slots_job_row(job, &row);
    int error = store_put_one(s->store, &row, err);
    if (error < 0)
        return error;
    list_append(&s->works->slots->jobs, &job->link);
    error = slots_decide_submit(job, followers);
    if (error < 0) {
        list_remove(&job->link);
        (void)store_erase_one(s->store, &row, err);
        return err_set(
            err, error,
            "job %s needs %u slots, and site %.64s has %u; submit it with fewer workers, "
            "or ask the operator for more --worker-slots",
            job->name, job->workers_min, job->pool->site->name, job->pool->site->count);
    }
    s->works->slots->jobs_count++;
    return 0;
}

void slots_handle_submit(struct peer *p, const envelope *message)
{
    const WIRE(PoolSubmit) *submit = message->pool_submit;
    struct slots_pool *pool = slots_pool_of(p);
    struct err err;
    if (!pool)
        return peer_fail(p, message->id, -ENOTCONN, "this connection has no pool; join as one");
    if (!slots_submit_is_valid(p, message->id, submit) ||
        !slots_name_is_free(p, message->id, submit))
        return;
    struct slots_job *job = slots_make_job(pool, submit);
    if (!job)
        return peer_fail_memory(p, message->id);
    int error = slots_submit(job, submit->followers, &err);
    if (error < 0) {
        slots_job_free(job);
        return peer_fail(p, message->id, error, "%s", err.text);
    }
    log_info("job %s was submitted by the pool on %s: %u to %u workers on site %s", job->name,
             pool->node, job->workers_min, job->workers_max, pool->site->name);
    peer_reply_done(p, message->id);
    slots_carry_out(pool->site);
}

void slots_handle_withdraw(struct peer *p, const envelope *message)
{
    struct slots_pool *pool = slots_pool_of(p);
    const char *name = message->pool_withdraw->job;
    struct slots_job *job = pool ? slots_find_job(p->service, pool->tenant, name) : NULL;
    if (!pool)
        return peer_fail(p, message->id, -ENOTCONN, "this connection has no pool; join as one");
    if (!job || job->pool != pool)
        return peer_fail(p, message->id, -ENOENT, "this pool has no job %.127s", name);
    slots_job_end(job, -ECANCELED, "its pool has ended it");
    peer_reply_done(p, message->id);
    slots_carry_out(pool->site);
}
