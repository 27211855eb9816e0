/* Jobs: creation, parts and end. Owns struct job with its sessions, tensors and shares. A job
 * exists while a worker is joined or away. A failed job exists until its last worker has left. */
#include "svc/coordinator/job/job.h"

#include "svc/base/log.h"
#include "svc/coordinator/growth/exploring.h"
#include "svc/coordinator/job/counts.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/placement/history.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/snapshot/snapshot.h"
#include "svc/coordinator/view/display.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool job_has_parts(const struct job *job)
{
    return job->terms && job->ranks && job->index && job->waiting && job->copies && job->growth &&
           job->figures && job->left && job->profile;
}

static void job_free_parts(struct job *job)
{
    free(job->terms);
    free(job->ranks);
    free(job->index);
    free(job->waiting);
    free(job->copies);
    free(job->growth);
    free(job->figures);
    counts_destroy(job);
    free(job->left);
    free(job->profile);
}

static struct job *job_create_parts(void)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->terms = calloc(1, sizeof *job->terms);
    job->ranks = calloc(1, sizeof *job->ranks);
    job->index = calloc(1, sizeof *job->index);
    job->waiting = calloc(1, sizeof *job->waiting);
    job->copies = calloc(1, sizeof *job->copies);
    job->growth = calloc(1, sizeof *job->growth);
    job->figures = calloc(1, sizeof *job->figures);
    job->left = calloc(1, sizeof *job->left);
    job->profile = calloc(1, sizeof *job->profile);
    if (job_has_parts(job))
        return job;
    job_free_parts(job);
    free(job);
    return NULL;
}

struct job *jobs_create(struct service *s, struct tenant *tenant, uint32_t id, const char *name,
                        uint32_t workers)
{
    struct job *job = job_create_parts();
    if (!job)
        return NULL;
    list_init(&job->link);
    list_init(&job->index->tables.list);
    list_init(&job->index->tables.copies);
    job->id = id;
    job->workers = workers;
    job->name = strdup(name);
    job->sessions = calloc(workers, sizeof *job->sessions);
    job->service = s;
    job->tenant = tenant;
    job->epoch = job->next_tensor = job->next_piece = 1;
    job->ranks->founding = job->ranks->wanted = workers;
    job->figures->arrived_ns = job->figures->trained_ns = clock_now_ns();
    if (!job->name || !job->sessions) {
        jobs_destroy(job);
        return NULL;
    }
    return job;
}

void jobs_destroy(struct job *job)
{
    job->service->on->job->ends(job);
    while (job->tensors_count > 0)
        jobs_remove_tensor(job, job->tensors[job->tensors_count - 1]);
    list_remove(&job->link);
    free(job->sessions);
    free(job->tensors);
    hash_fini(&job->index->by_name);
    free(job->shares);
    free(job->failure);
    free(job->waiting->waits_for);
    free(job->name);
    job_free_parts(job);
    free(job);
}

struct job *jobs_find(struct service *s, const struct tenant *tenant, const char *name)
{
    list_for_each_entry (struct job, job, &s->jobs, link)
        if (job->tenant == tenant && strcmp(job->name, name) == 0)
            return job;
    return NULL;
}

static bool is_meant(const struct job *job, const struct peer *p, const char *name,
                     const char *tenant)
{
    const char *whose = strcmp(tenant, "-") == 0 ? "" : tenant;
    return strcmp(job->name, name) == 0 && (p->is_operator || job->tenant == p->tenant) &&
           (!*tenant || strcmp(job->tenant->key.tenant, whose) == 0);
}

struct job *jobs_find_meant(struct peer *p, uint64_t request, const char *name, const char *tenant)
{
    struct job *meant = NULL;
    list_for_each_entry (struct job, job, &p->service->jobs, link) {
        if (!is_meant(job, p, name, tenant))
            continue;
        if (meant) {
            peer_fail(p, request, -EINVAL,
                      "more than one tenant has a job %.127s: name the tenant with --tenant", name);
            return NULL;
        }
        meant = job;
    }
    if (!meant)
        peer_fail(p, request, -ENOENT, "there is no job %.127s; see gradpool jobs", name);
    return meant;
}

struct job *jobs_find_id(struct service *s, uint32_t id)
{
    list_for_each_entry (struct job, job, &s->jobs, link)
        if (job->id == id)
            return job;
    return NULL;
}

bool jobs_is_complete(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->ranks->founding; rank++)
        if (!job->sessions[rank] && members_have(job, rank))
            return false;
    return true;
}

_Static_assert(sizeof(struct backup_terms) == STORE_BACKUP_BYTES, "stored as they are");

static uint32_t job_flags(const struct job_terms *terms)
{
    return (terms->continues ? STORE_JOB_CONTINUES : 0) |
           (terms->is_elastic ? STORE_JOB_ELASTIC : 0);
}

void jobs_row(const struct job *job, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_JOB};
    ret_row->job = (struct store_job){.job = job->id,
                                      .tenant = job->tenant->key.tenant,
                                      .name = job->name,
                                      .workers = job->workers,
                                      .epoch = job->epoch,
                                      .next_tensor = job->next_tensor,
                                      .next_piece = job->next_piece,
                                      .failure = job->failure ? job->failure : "",
                                      .loss_limit_ppm = job->terms->loss_limit_ppm,
                                      .layout = job->terms->layout,
                                      .founding = job->ranks->founding,
                                      .wanted = job->ranks->wanted,
                                      .version = job->ranks->version,
                                      .flags = job_flags(job->terms),
                                      .backup = &job->terms->backup,
                                      .ordered_until_ns = job->growth->ordered_until_ns,
                                      .rest = job->ranks->rest};
}

/* Reads the terms of backup workers that the first worker requested. The join checked them, but the
 * file may have changed since. */
static int restore_backup(const struct store_job *row, struct backup_terms *ret_terms)
{
    struct err err;
    memcpy(ret_terms, row->backup, sizeof *ret_terms);
    return backup_terms_check(ret_terms, row->wanted ? row->founding : row->workers, row->name,
                              &err) < 0
               ? -EBADMSG
               : 0;
}

int jobs_restore(struct service *s, const struct store_job *row)
{
    struct tenant *tenant = tenants_find(s, row->tenant);
    struct backup_terms backup;
    if (!tenant || row->workers < 1 || row->workers > WORKERS_MAX)
        return -EBADMSG;
    if (restore_backup(row, &backup) < 0)
        return -EBADMSG;
    struct job *job = jobs_create(s, tenant, row->job, row->name, row->workers);
    if (!job)
        return -ENOMEM;
    job->figures->arrived_ns = 0;
    job->epoch = row->epoch;
    job->next_tensor = row->next_tensor;
    job->next_piece = row->next_piece;
    job->terms->layout = row->layout;
    job->ranks->founding =
        /* `founding` 0: no initial rank has joined yet */
        row->wanted ? row->founding : row->workers;
    job->ranks->wanted = row->wanted ? row->wanted : row->workers;
    job->ranks->version = row->version;
    job->ranks->rest = row->rest;
    job->terms->continues = row->flags & STORE_JOB_CONTINUES;
    job->terms->is_elastic = row->flags & STORE_JOB_ELASTIC;
    job->terms->backup = backup;
    job->terms->loss_limit_ppm = row->loss_limit_ppm;
    job->failure = *row->failure ? strdup(row->failure) : NULL;
    job->growth->ordered_until_ns = row->ordered_until_ns;
    list_append(&s->jobs, &job->link);
    return 0;
}

void jobs_broadcast(struct job *job, const struct session *except, const envelope *message)
{
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (session && session != except && session->peer)
            peer_send(session->peer, message);
    }
}

static void keep_failure(struct job *job)
{
    struct store_row row;
    struct err err;
    jobs_row(job, &row);
    if (store_put_one(job->service->store, &row, &err) < 0)
        log_error("%s", err.text);
}

void jobs_send_failure(const struct job *job, int code, struct peer *to)
{
    peer_reply(to, 0, JOB_FAILURE, job_failure, .code = code, .text = job->failure);
}

const char *jobs_state(const struct job *job)
{
    if (job->failure)
        return "failed";
    if (job->waiting->waits_for)
        return "waiting";
    return jobs_is_complete(job) ? "training" : "joining";
}

void jobs_fail(struct job *job, const struct session *except, int code, const char *format, ...)
{
    if (job->failure)
        return;
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char prefix[TENANT_PREFIX_BYTES];
    log_error("job %s%s has failed: %s", tenant_prefix(job->tenant, prefix), job->name, text);
    job->failure = strdup(text);
    keep_failure(job);
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (session && session != except && session->peer)
            jobs_send_failure(job, code, session->peer);
    }
    job->service->on->job->tensors_are_settled(job);
}

/* Deletes the job from the store. If this fails, the next start restores the job without workers
 * and ends it. */
void jobs_forget(struct job *job)
{
    struct store_row row = {.table = STORE_JOB, .job.job = job->id};
    struct err err;
    if (store_erase_one(job->service->store, &row, &err) < 0)
        log_error("%s", err.text);
}

static bool job_is_empty(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (session && (session->state == SESSION_JOINED || session->state == SESSION_AWAY))
            return false;
    }
    return true;
}

void jobs_end(struct job *job)
{
    char prefix[TENANT_PREFIX_BYTES];
    job->service->on->job->is_ending(job);
    jobs_forget(job);
    job->service->on->job->is_over(job);
    log_info("job %s%s has ended", tenant_prefix(job->tenant, prefix), job->name);
    jobs_destroy(job);
}

void jobs_end_if_empty(struct job *job)
{
    if (job_is_empty(job))
        jobs_end(job);
}

/* --- tensors of a job --- */

/* Makes room for one more tensor in job->tensors and in the index by name. */
static int grow_tables(struct job *job)
{
    if (hash_reserve(&job->index->by_name) < 0)
        return -ENOMEM;
    if (job->tensors_count < job->index->capacity)
        return 0;
    size_t capacity = job->index->capacity ? 2 * job->index->capacity : 16;
    struct tensor **grown = realloc(job->tensors, capacity * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    job->tensors = grown;
    job->index->capacity = capacity;
    return 0;
}

int jobs_add_tensor(struct job *job, struct tensor *tensor)
{
    int error = grow_tables(job);
    if (error < 0)
        return error;
    job->tensors[job->tensors_count++] = tensor;
    hash_add(&job->index->by_name, &tensor->by_name, hash_text(tensor->name));
    job->index->bytes += tensor_bytes(tensor, tensor->elements);
    job->index->has_steps |= strcmp(tensor->name, TERMS_STEPS_NAME) == 0;
    return 0;
}

/* Returns the index of the last tensor whose number is at most `id`, or -1. With `by_piece`, the
 * number of each tensor's first piece is compared with `id`. */
static ptrdiff_t tensor_at(const struct job *job, uint32_t id, bool by_piece)
{
    size_t low = 0, high = job->tensors_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tensor *tensor = job->tensors[middle];
        uint32_t key = by_piece ? tensor->pieces[0].id : tensor->id;
        if (key <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return (ptrdiff_t)low - 1;
}

struct tensor *jobs_tensor(const struct job *job, uint32_t id)
{
    ptrdiff_t at = tensor_at(job, id, false);
    return at >= 0 && job->tensors[at]->id == id ? job->tensors[at] : NULL;
}

struct tensor *jobs_tensor_after(const struct job *job, uint32_t id, size_t *place)
{
    if (*place >= job->tensors_count || job->tensors[*place]->id != id) {
        ptrdiff_t at = tensor_at(job, id, false);
        *place = at >= 0 ? (size_t)at : 0;
    }
    if (*place >= job->tensors_count || job->tensors[*place]->id != id)
        return NULL;
    return job->tensors[(*place)++];
}

struct tensor *jobs_tensor_named(const struct job *job, const char *name)
{
    hash_for_each (struct tensor, tensor, &job->index->by_name, hash_text(name), by_name)
        if (strcmp(tensor->name, name) == 0)
            return tensor;
    return NULL;
}

struct piece *jobs_piece(const struct job *job, uint32_t id, struct tensor **ret_tensor)
{
    ptrdiff_t at = tensor_at(job, id, true);
    if (at < 0)
        return NULL;
    struct tensor *tensor = job->tensors[at];
    size_t index = id - tensor->pieces[0].id;
    if (index >= tensor->pieces_count)
        return NULL;
    if (ret_tensor)
        *ret_tensor = tensor;
    return &tensor->pieces[index];
}

void jobs_remove_tensor(struct job *job, struct tensor *tensor)
{
    ptrdiff_t at = tensor_at(job, tensor->id, false);
    for (size_t i = 0; i < tensor->pieces_count; i++)
        piece_detach(tensor, &tensor->pieces[i]);
    job->index->pieces_count -= tensor->pieces_count;
    job->index->bytes -= tensor_bytes(tensor, tensor->elements);
    job->index->has_steps &= strcmp(tensor->name, TERMS_STEPS_NAME) != 0;
    hash_remove(&job->index->by_name, &tensor->by_name);
    job->tensors_count--;
    memmove(&job->tensors[at], &job->tensors[at + 1],
            (job->tensors_count - (size_t)at) * sizeof *job->tensors);
    tensor_destroy(tensor);
}
