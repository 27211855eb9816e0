/* Jobs of pools: their memory, rows and end. Owns struct slots_job. */
#include "svc/base/log.h"
#include "svc/coordinator/slots/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slots_job *slots_job_create(struct slots_pool *pool, const char *name, const char *study,
                                   uint32_t workers_min, uint32_t workers_max)
{
    struct slots_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    list_init(&job->link);
    job->id = ++pool->service->works->slots->next_id;
    job->pool = pool;
    job->workers_min = workers_min;
    job->workers_max = workers_max;
    job->name = strdup(name);
    job->study = strdup(study);
    job->speed = calloc(1, sizeof *job->speed);
    job->rest = calloc(1, sizeof *job->rest);
    job->workers = calloc(workers_max, sizeof *job->workers);
    if (job->name && job->study && job->speed && job->rest && job->workers)
        return job;
    slots_job_free(job);
    return NULL;
}

void slots_job_free(struct slots_job *job)
{
    for (uint32_t rank = 0; job->workers && rank < job->reach; rank++)
        free(job->workers[rank].waits);
    list_remove(&job->link);
    free(job->workers);
    free(job->speed);
    free(job->rest);
    free(job->study);
    free(job->name);
    free(job);
}

static uint32_t slots_flags(const struct slots_job *job)
{
    return (job->is_complete ? STORE_POOL_JOB_COMPLETE : 0) |
           (job->is_ending ? STORE_POOL_JOB_ENDING : 0) |
           (job->rest->may ? STORE_POOL_JOB_MAY_REST : 0) |
           (job->rest->is_ordered ? STORE_POOL_JOB_RESTS : 0) |
           (job->rest->is_by_user ? STORE_POOL_JOB_BY_ORDER : 0);
}

void slots_job_row(const struct slots_job *job, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_POOL_JOB};
    ret_row->pool_job = (struct store_pool_job){.tenant = job->pool->tenant->key.tenant,
                                                .job = job->name,
                                                .site = job->pool->site->name,
                                                .study = job->study,
                                                .node = job->pool->node,
                                                .pid = job->pool->pid,
                                                .pool = job->pool->number,
                                                .workers_min = job->workers_min,
                                                .workers_max = job->workers_max,
                                                .first = job->first,
                                                .steps = job->steps,
                                                .flags = slots_flags(job),
                                                .end_code = job->end_code,
                                                .end_text = job->end_text};
}

static void slots_worker_row(const struct slots_job *job, uint32_t rank, struct store_row *ret_row)
{
    const struct slots_worker *worker = &job->workers[rank];
    *ret_row = (struct store_row){.table = STORE_POOL_WORKER};
    ret_row->pool_worker = (struct store_pool_worker){
        .tenant = job->pool->tenant->key.tenant,
        .job = job->name,
        .rank = rank,
        .incarnation = worker->incarnation,
        .slot = worker->slot,
        .flags = (worker->state >= SLOTS_STARTED ? STORE_POOL_WORKER_STARTED : 0) |
                 (worker->state == SLOTS_RESTING ? STORE_POOL_WORKER_RESTING : 0) |
                 (worker->has_joined ? STORE_POOL_WORKER_JOINED : 0) |
                 (worker->is_leaving ? STORE_POOL_WORKER_LEAVING : 0) |
                 (worker->has_left ? STORE_POOL_WORKER_LEFT : 0) |
                 (worker->was_lost ? STORE_POOL_WORKER_LOST : 0)};
}

int slots_worker_keep(const struct slots_job *job, uint32_t rank)
{
    struct store *store = job->pool->service->store;
    struct store_row row;
    struct err err;
    store_begin(store);
    slots_job_row(job, &row);
    store_put(store, &row);
    slots_worker_row(job, rank, &row);
    if (job->workers[rank].state == SLOTS_NONE)
        store_erase(store, &row);
    else
        store_put(store, &row);
    int error = store_commit(store, &err);
    if (error < 0)
        log_error("job %s: the order for rank %u was not stored: %s", job->name, rank, err.text);
    return error;
}

int slots_job_keep(const struct slots_job *job, struct err *err)
{
    struct store_row row;
    slots_job_row(job, &row);
    return store_put_one(job->pool->service->store, &row, err);
}

void slots_workers_keep(const struct slots_job *job)
{
    struct store *store = job->pool->service->store;
    struct store_row row;
    struct err err;
    store_begin(store);
    for (uint32_t rank = 0; rank < job->reach; rank++) {
        slots_worker_row(job, rank, &row);
        if (job->workers[rank].state > SLOTS_WANTED)
            store_put(store, &row);
    }
    if (store_commit(store, &err) < 0)
        log_error("job %s: the end of its workers could not be written to the state directory: %s",
                  job->name, err.text);
}

void slots_worker_out(struct slots_job *job, uint32_t rank)
{
    struct slots_worker *worker = &job->workers[rank];
    struct slots_site *site = job->pool->site;
    uint32_t slot = worker->slot;
    bool is_stored = worker->state > SLOTS_WANTED, has_slot = worker->state != SLOTS_RESTING;
    free(worker->waits);
    *worker = (struct slots_worker){.state = SLOTS_NONE};
    if (is_stored)
        (void)slots_worker_keep(job, rank);
    if (!has_slot)
        return;
    slots_decide(
        site, (struct scheduler_event){.kind = SCHEDULER_WORKER_OUT, .job = job->id, .rank = rank});
    if (slot >= site->count)
        slots_decide(site, (struct scheduler_event){.kind = SCHEDULER_SLOT_LOST, .slot = slot});
}

uint32_t slots_job_count_workers(const struct slots_job *job)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < job->reach; rank++)
        count += job->workers[rank].state != SLOTS_NONE;
    return count;
}

void slots_job_end(struct slots_job *job, int code, const char *text)
{
    struct store_row row;
    struct err err;
    if (job->is_ending)
        return;
    job->is_ending = true;
    job->end_code = code;
    snprintf(job->end_text, sizeof job->end_text, "%s", text);
    slots_job_row(job, &row);
    if (store_put_one(job->pool->service->store, &row, &err) < 0)
        log_error("job %s: its end was not stored: %s", job->name, err.text);
    for (uint32_t rank = 0; rank < job->reach; rank++)
        job->workers[rank].is_leaving |= job->workers[rank].state == SLOTS_RESTING;
    slots_decide(job->pool->site,
                 (struct scheduler_event){.kind = SCHEDULER_END_ORDERED, .job = job->id});
}

void slots_job_hold(struct slots_job *job)
{
    bool is_held = slots_must_hold(job);
    if (is_held == job->is_held)
        return;
    job->is_held = is_held;
    slots_decide(job->pool->site, (struct scheduler_event){
                                      .kind = SCHEDULER_HELD, .job = job->id, .is_held = is_held});
    /* slots that the scheduler has given without an order so far are returned */
    for (uint32_t rank = 0; is_held && rank < job->reach; rank++)
        if (job->workers[rank].state == SLOTS_WANTED)
            slots_worker_out(job, rank);
}
