/* Owns a worker's membership in a job: join, leave, and what the coordinator says unasked. Must
 * release what lanes can reach only after every connection is closed. */
#include "client/as_operator.h"
#include "client/fork.h"
#include "client/job.h"
#include "client/link.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/populate.h"
#include "svc/base/process.h"
#include "svc/base/shortage.h"
#include "svc/base/text.h"
#include "svc/wire/durability.h"
#include "svc/wire/limit.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A goodbye is polite, not a duty: none of its steps may take longer. */
#define LEAVE_STEP_NS (1 * NS_PER_S)

int job_check(const struct gp_job *job)
{
    if (!job)
        return client_error(-EINVAL, "no job given");
    if (fork_is_foreign(job->generation))
        return client_error(-ECHILD,
                            "job '%s' belongs to the parent process; join it anew after "
                            "fork(), or use the spawn start method",
                            job->name);
    return 0;
}

void job_break(struct gp_job *job, int code, const char *format, ...)
{
    if (job->failure.code)
        return;
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    err_set(&job->failure, code < 0 ? code : -EPROTO, "%s", text[0] ? text : err_text(code));
    list_for_each (node, &job->requests)
        request_fail(list_entry(node, struct gp_request, node), job->failure.code,
                     job->failure.text);
    engine_kick(&job->engine);
}

static bool needs_progress(void *context)
{
    const struct gp_job *job = context;
    return job->engine.ofi_conns > 0 || job->queued || job->unsent || job->connecting;
}

/* ---- what the coordinator says unasked ---- */

static void fail_tensor(struct gp_job *job, const Gradpool__Wire__TensorFailure *failure)
{
    struct gp_tensor *t = tensor_find_id(job, failure->tensor);
    if (t)
        tensor_break(t, failure->code, failure->text);
}

/* The service's own words on what the job waits for. */
static void log_notice(const struct gp_job *job, const Gradpool__Wire__Notice *notice)
{
    if (*notice->text)
        log_warn("job %s waits: %s", job->name, notice->text);
    else
        log_warn("job %s goes on", job->name);
}

static void handle_unasked(void *context, const envelope *message)
{
    struct gp_job *job = context;
    if (message->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_TAKE)
        return recorder_take(job, message->timeline_take);
    pthread_mutex_lock(&job->lock);
    switch (message->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_TENSOR_FAILURE:
        fail_tensor(job, message->tensor_failure);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_JOB_FAILURE:
        job_break(job, message->job_failure->code, "%s", message->job_failure->text);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_ROUTE_CHANGE:
        if (!job->is_leaving)
            reroute(job, message->route_change);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_MEMBERSHIP:
        membership_take(job, message->membership);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_NOTICE: log_notice(job, message->notice); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_HOLD: hold_take(job, message->hold); break;
    default: job->stale++;
    }
    engine_flush(&job->engine);
    engine_kick(&job->engine);
    pthread_mutex_unlock(&job->lock);
}

static void tell_progress(void *context) { progress_tell(context); }

/* ---- join ---- */

static int check_spec(const gp_job_spec *spec)
{
    if (!spec || !spec->name || !*spec->name)
        return client_error(-EINVAL, "the job has no name: give one, or set GRADPOOL_JOB");
    if (strlen(spec->name) > JOB_NAME_BYTES_MAX)
        return client_error(-EINVAL, "the job's name has %zu bytes, at most %d", strlen(spec->name),
                            JOB_NAME_BYTES_MAX);
    if (!text_is_utf8(spec->name))
        return client_error(-EINVAL,
                            "the job's name is no UTF-8: everybody has to be able to show it");
    if (spec->workers < 1 || spec->workers > CLIENT_WORKERS_MAX)
        return client_error(-EINVAL, "job '%s' with %u workers, expected 1 to %d", spec->name,
                            spec->workers, CLIENT_WORKERS_MAX);
    if (spec->workers_max > CLIENT_WORKERS_MAX ||
        (spec->workers_max && spec->workers_max < spec->workers))
        return client_error(-EINVAL, "job '%s': workers_max %u, expected %u to %d", spec->name,
                            spec->workers_max, spec->workers, CLIENT_WORKERS_MAX);
    /* Which of them may come now is the coordinator's to say (K45 of svc/coordinator). */
    uint32_t most = spec->workers_max ? spec->workers_max : spec->workers;
    if (spec->rank >= most)
        return client_error(-EINVAL, "job '%s': rank %u of %s%u workers; ranks count from 0",
                            spec->name, spec->rank, spec->workers_max ? "at most " : "", most);
    if (spec->on_worker_loss != GP_FAIL && spec->on_worker_loss != GP_CONTINUE)
        return client_error(-EINVAL, "job '%s': on_worker_loss %d is unknown", spec->name,
                            (int)spec->on_worker_loss);
    if ((unsigned)spec->durability > DURABILITY_MOST)
        return client_error(-EINVAL, "job '%s': durability %d is unknown", spec->name,
                            spec->durability);
    if (spec->loss_limit_ppm > LOSS_LIMIT_PPM_MAX)
        return client_error(-EINVAL, "job '%s': a loss limit of %u ppm, expected at most %u",
                            spec->name, spec->loss_limit_ppm, LOSS_LIMIT_PPM_MAX);
    return 0;
}

static struct gp_job *job_create(gp_client *client, const gp_job_spec *spec)
{
    struct gp_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->client = client;
    job->generation = client->generation;
    job->rank = spec->rank;
    job->workers = spec->workers_max ? spec->workers_max : spec->workers;
    job->is_elastic = spec->on_worker_loss == GP_CONTINUE || job->workers > spec->workers;
    membership_init(job, spec->workers);
    job->free_slot = UINT32_MAX;
    job->loss = NAN;
    job->read_fd = -1;
    job->progress.told.at_ns = clock_now_ns();
    snprintf(job->name, sizeof job->name, "%s", spec->name);
    gethostname(job->host, sizeof job->host - 1);
    pthread_mutex_init(&job->lock, NULL);
    pthread_mutex_init(&job->declaring, NULL);
    struct list *lists[] = {&job->node,    &job->fork_node, &job->links,
                            &job->tensors, &job->requests,  &job->pool};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    return job;
}

static void job_free(struct gp_job *job)
{
    control_destroy(job->control);
    recorder_fini(job);
    pthread_mutex_destroy(&job->declaring);
    pthread_mutex_destroy(&job->lock);
    tensor_table_fini(job);
    free(job->slots);
    free(job);
}

static int create_control(struct gp_job *job, const gp_job_spec *spec, struct err *err)
{
    gp_client *client = job->client;
    gradpool__wire__join_request__init(&job->join);
    job->join.job = job->name;
    job->join.rank = job->rank;
    job->join.workers = spec->workers;
    job->join.workers_max = spec->workers_max;
    job->join.continues = spec->on_worker_loss == GP_CONTINUE;
    job->join.node = job->host;
    job->join.loss_limit_ppm = spec->loss_limit_ppm;
    job->join.durability = spec->durability;
    job->join.pid = (uint32_t)getpid();
    job->join.pid_namespace = process_namespace();
    job->join.identity = process_identity(job->join.pid);
    job->join.lane_wait_ms = (uint32_t)(client->connect_timeout_ns / NS_PER_MS);
    job->join.answer_ms = (uint32_t)(client->timeout_ns / NS_PER_MS);
    struct control_options options = {.endpoint = &client->endpoint,
                                      .addresses = &client->addresses,
                                      .key = client->has_key ? &client->key : NULL,
                                      .endpoint_text = client->endpoint_text,
                                      .program = CLIENT_PROGRAM,
                                      .join = &job->join,
                                      .join_is_late = &job->join_is_late,
                                      .unasked = handle_unasked,
                                      .tick_ns =
                                          log_is_written(LOG_LEVEL_INFO) ? client->progress_ns : 0,
                                      .tick = tell_progress,
                                      .context = job};
    return control_create(&options, &job->control, err);
}

/* The job's last sockets and threads end before a child need not hear of it any more. */
static void close_control(struct gp_job *job)
{
    if (job->control)
        control_stop(job->control);
    engine_stop(&job->engine);
    fork_forget(job);
}

/* Forks are watched for from before the first socket is there (L8). */
static int start(struct gp_job *job, const gp_job_spec *spec, struct err *err)
{
    char lack[SHORTAGE_BYTES];
    int r = engine_init(&job->engine, &job->lock, link_event, needs_progress, job);
    if (r < 0)
        return err_set(err, r, "job '%s': no thread or descriptors: %s", job->name,
                       shortage_text(r, SHORTAGE_THREADS, lack, sizeof lack));
    r = create_control(job, spec, err);
    if (r == 0 && (r = fork_watch(job)) < 0)
        err_set(err, r, "job '%s': %s", job->name, err_text(r));
    if (r == 0) {
        uint64_t deadline_ns = clock_now_ns() + job->client->connect_timeout_ns;
        r = control_connect(job->control, deadline_ns, err);
    }
    if (r < 0) {
        close_control(job);
        engine_fini(&job->engine);
    }
    return r;
}

int gp_job_join(gp_client *client, const gp_job_spec *spec, gp_job **ret_job)
{
    struct err err = {0};
    if (!client || !ret_job)
        return client_error(-EINVAL, "gp_job_join: no client, or no place for the result");
    if (fork_is_foreign(client->generation))
        return client_error(-ECHILD, "the client belongs to the parent process; connect anew");
    int r = check_spec(spec);
    if (r < 0)
        return r;
    struct gp_job *job = job_create(client, spec);
    if (!job)
        return client_error(-ENOMEM, "out of memory");
    r = start(job, spec, &err);
    if (r < 0) {
        job_free(job);
        return client_error(r, "%s", err.text[0] ? err.text : err_text(r));
    }
    job->id = job->join.job_id;
    job->keeps_copies = job->join.durability == DURABILITY_WORKER;
    job->has_copies = job->keeps_copies || job->join.durability == DURABILITY_REPLICA;
    pthread_mutex_lock(&client->lock);
    list_append(&client->jobs, &job->node);
    pthread_mutex_unlock(&client->lock);
    job_timeline_from_environment(job);
    *ret_job = job;
    return 0;
}

int gp_job_tell_loss(gp_job *job, float loss)
{
    int r = job_check(job);
    if (r < 0)
        return r;
    pthread_mutex_lock(&job->lock);
    job->loss = loss;
    pthread_mutex_unlock(&job->lock);
    return 0;
}

uint32_t gp_job_rank(const gp_job *job) { return job ? job->rank : 0; }

/* ---- leave ---- */

/* Others may still lack a result that this worker has read: leaving then would look like a loss. */
static bool is_settled(void *context)
{
    struct gp_job *job = context;
    if (job->failure.code)
        return true;
    list_for_each (node, &job->tensors) {
        const struct gp_tensor *t = list_entry(node, struct gp_tensor, node);
        if (t->without_commit > 0 && t->without_result == 0)
            return false;
    }
    return true;
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
    list_for_each (node, &job->requests) {
        struct gp_request *q = list_entry(node, struct gp_request, node);
        if (!q->err.code) /* also one whose result nobody has fetched */
            err_set(&q->err, -ECANCELED, "rank %u left job '%s'", job->rank, job->name);
    }
    engine_kick(&job->engine);
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, is_unused, job);
}

static bool goodbyes_are_said(void *context)
{
    struct gp_job *job = context;
    list_for_each (node, &job->links) {
        if (link_owes_goodbye(list_entry(node, struct link, node)))
            return false;
    }
    return true;
}

static void disconnect(struct gp_job *job)
{
    list_for_each (node, &job->links)
        link_say_goodbye(list_entry(node, struct link, node));
    engine_flush(&job->engine);
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, goodbyes_are_said, job);
    list_for_each (node, &job->links)
        link_close(list_entry(node, struct link, node));
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, is_disconnected, job);
}

static void ignore_reply(struct control_call *call, const envelope *reply, const struct err *err)
{
    /* Whatever it says, the job is left. */
}

static void say_leave(struct gp_job *job)
{
    Gradpool__Wire__LeaveRequest leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    struct control_call call = {.request = GRADPOOL__WIRE__ENVELOPE__INIT, .done = ignore_reply};
    call.request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_LEAVE_REQUEST;
    call.request.leave_request = &leave;
    if (!control_is_up(job->control))
        return;
    control_post(job->control, &call);
    control_wait(job->control, &call, clock_now_ns() + LEAVE_STEP_NS);
}

/* A request that nobody waited for is still in its owner's hands. Not while somebody uses the job:
 * nobody comes any more once its requests do not name it (L14). */
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

/* Who is in there still has only its copying to do: requests and job have failed. */
static void abandon_requests(struct gp_job *job)
{
    pthread_mutex_lock(&job->lock);
    while (!engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, try_abandon, job))
        log_warn("job '%s' rank %u: left while another thread copies a result", job->name,
                 job->rank);
    pthread_mutex_unlock(&job->lock);
    list_for_each_safe (node, &job->pool)
        free(list_entry(node, struct gp_request, node));
}

static void release_all(struct gp_job *job)
{
    abandon_requests(job);
    list_for_each_safe (node, &job->tensors)
        tensor_remove(list_entry(node, struct gp_tensor, node));
    engine_fini(&job->engine);
    list_for_each_safe (node, &job->links)
        link_free(list_entry(node, struct link, node));
    slabs_fini(&job->slabs);
    job_free(job);
}

void gp_job_leave(gp_job *job)
{
    if (!job || fork_is_foreign(job->generation))
        return;
    pthread_mutex_lock(&job->client->lock);
    list_remove(&job->node);
    pthread_mutex_unlock(&job->client->lock);
    job_timeline_end(job);
    pthread_mutex_lock(&job->lock);
    engine_run(&job->engine, clock_now_ns() + LEAVE_STEP_NS, is_settled, job);
    job->is_leaving = true;
    job_read_cancel(job);
    cancel_requests(job);
    disconnect(job);
    pthread_mutex_unlock(&job->lock);
    say_leave(job);
    close_control(job);
    release_all(job);
}

/* ---- memory ---- */

static void free_lent(struct gp_job *job, void *memory)
{
    pthread_mutex_lock(&job->lock);
    slabs_free(&job->slabs, memory);
    pthread_mutex_unlock(&job->lock);
}

/* Pages are added without the lock: other threads of the job train on meanwhile. */
static int alloc_lent(struct gp_job *job, size_t bytes, void **ret_memory)
{
    void *memory;
    pthread_mutex_lock(&job->lock);
    int r = slabs_reserve(&job->slabs, bytes, &memory);
    if (r == 0)
        link_flush_all(job); /* a new slab is lent before it is needed */
    pthread_mutex_unlock(&job->lock);
    if (r == 0 && populate(memory, bytes) < 0) {
        free_lent(job, memory);
        r = -ENOMEM;
    }
    if (r == 0)
        *ret_memory = memory;
    return r;
}

int gp_alloc(gp_job *job, size_t bytes, void **ret_memory)
{
    int r = job_check(job);
    if (r < 0)
        return r;
    if (!ret_memory)
        return client_error(-EINVAL, "gp_alloc: no place for the result");
    r = alloc_lent(job, bytes, ret_memory);
    if (r == -ENOSPC)
        return client_error(
            r, "gp_alloc of %zu bytes: a worker can lend 512 GiB in a job, in %d parts", bytes,
            FABRIC_REGIONS_MAX);
    char lack[SHORTAGE_BYTES];
    return r < 0 ? client_error(r, "gp_alloc of %zu bytes: %s", bytes,
                                shortage_text(r, SHORTAGE_OTHER, lack, sizeof lack))
                 : 0;
}

int gp_keep(gp_job *job, void *memory)
{
    int r = job_check(job);
    if (r < 0)
        return r;
    pthread_mutex_lock(&job->lock);
    r = slabs_keep(&job->slabs, memory);
    pthread_mutex_unlock(&job->lock);
    return r < 0 ? client_error(r, "gp_keep of memory that is not from gp_alloc()") : 0;
}

void gp_free(gp_job *job, void *memory)
{
    if (!memory || !job || fork_is_foreign(job->generation))
        return;
    free_lent(job, memory);
}
