/* Beginning and end of the room: creates sites from the option, restores jobs, and checks all jobs
 * once a second. Owns struct slots. In an idle service the timer is off. README.md has the rules
 * SL1 to SL5. */
#include "svc/base/log.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- sites --- */

/* Reads the first "SITE=N" of the text. Returns the rest of the text, or NULL if it is invalid. */
static const char *slots_parse_site(const char *text, char ret_name[SLOTS_SITE_BYTES + 1],
                                    uint32_t *ret_count)
{
    size_t length = strcspn(text, "=,");
    char *end;
    if (length < 1 || length > SLOTS_SITE_BYTES || text[length] != '=')
        return NULL;
    memcpy(ret_name, text, length);
    ret_name[length] = 0;
    const char *digits = text + length + 1;
    unsigned long count = strtoul(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || count < 1 || count > SCHEDULER_SLOTS_MAX ||
        (*end && *end != ',') || !text_is_node(ret_name))
        return NULL;
    *ret_count = (uint32_t)count;
    return *end == ',' ? end + 1 : end;
}

static bool slots_names_twice(const char *text, const char *name)
{
    char other[SLOTS_SITE_BYTES + 1];
    uint32_t count, found = 0;
    while (*text && (text = slots_parse_site(text, other, &count)))
        found += strcmp(name, other) == 0;
    return found > 1;
}

int slots_check_option(const char *text, struct err *err)
{
    char name[SLOTS_SITE_BYTES + 1];
    uint32_t count;
    const char *all = text;
    for (; text && *text; text = slots_parse_site(text, name, &count)) {
        if (!slots_parse_site(text, name, &count))
            break;
        if (slots_names_twice(all, name))
            return err_set(err, -EINVAL, "--worker-slots names site %s twice; name each site once",
                           name);
    }
    if (!text || !*text)
        return 0;
    return err_set(
        err, -EINVAL,
        "--worker-slots '%.100s': expected SITE=N, with a name of 1 to %d bytes and 1 to "
        "%d slots, and a comma between two sites",
        text, SLOTS_SITE_BYTES, SCHEDULER_SLOTS_MAX);
}

static struct slots_site *slots_create_site(struct service *s, const char *name, uint32_t count)
{
    struct slots_site *site = calloc(1, sizeof *site);
    struct scheduler_options options = {.slots = count, .keeps_processes = true};
    if (site)
        site->scheduler = scheduler_create(&options);
    if (!site || !site->scheduler) {
        free(site);
        return NULL;
    }
    site->service = s;
    site->count = count;
    memcpy(site->name, name, strlen(name) + 1);
    list_append(&s->works->slots->sites, &site->link);
    return site;
}

/* --- jobs --- */

size_t slots_count_unjoined(const struct service *s)
{
    size_t count = 0;
    list_for_each_entry (const struct slots_job, job, &s->works->slots->jobs, link)
        count += slots_training(job) == NULL;
    return count;
}

/* Ends the job at once. The pool is ordered to end the workers. Later reports about these workers
 * are not needed. */
static void slots_cut_off(struct slots_job *job, int code, const char *why)
{
    job->end_code = code;
    snprintf(job->end_text, sizeof job->end_text, "%s", why);
    slots_job_over(job);
}

void slots_end_jobs(struct service *s, const char *why)
{
    timer_stop(&s->works->slots->look);
    list_for_each_safe_entry (struct slots_job, job, &s->works->slots->jobs, link)
        slots_cut_off(job, -ESHUTDOWN, why);
}

void slots_tenant_revoked(struct service *s, const struct tenant *tenant)
{
    char why[SLOTS_TEXT_BYTES];
    snprintf(why, sizeof why, "the key of tenant %s was revoked; ask the operator for a new one",
             tenant->key.tenant);
    list_for_each_safe_entry (struct slots_job, job, &s->works->slots->jobs, link)
        if (job->pool->tenant == tenant)
            slots_cut_off(job, -EKEYREVOKED, why);
    slots_look_soon(s);
}

/* --- the check once a second --- */

static void slots_warn_of_terms(const struct slots_job *job, const struct job *of)
{
    if (job->is_fixed && job->workers_max > job->workers_min)
        log_warn("job %s joined without workers_max, so its %u workers stay; set workers_max to %u "
                 "in the script",
                 job->name, of->workers, job->workers_max);
    else if (!job->is_fixed && of->workers < job->workers_max)
        log_warn("job %s may have %u workers by its script, and %u by its pool; set workers_max to "
                 "%u in the script",
                 job->name, of->workers, job->workers_max, job->workers_max);
}

/* Resets the state of the training when the job has begun a new training, because the script of the
 * new training may have other terms. */
static void slots_look_at_training(struct slots_job *job, const struct job *of)
{
    if (job->training == (of ? of->id : 0))
        return;
    job->training = of ? of->id : 0;
    *job->speed = (struct slots_speed){.has_reported = job->speed->has_reported};
    job->is_fixed = of && !of->terms->is_elastic;
    if (!of)
        return;
    slots_warn_of_terms(job, of);
    slots_decide(job->pool->site,
                 (struct scheduler_event){.kind = SCHEDULER_LANES_LIMIT,
                                          .job = job->id,
                                          .workers = job->is_fixed ? 0 : of->workers});
}

/* Orders workers that have not joined to leave when the training is complete: they would wait for a
 * growth that does not come. Workers of a script that never joins a job stay. */
static void slots_end_unjoined(struct slots_job *job, const struct job *of)
{
    job->has_joined |= of != NULL;
    if (!job->is_complete || !job->has_joined)
        return;
    for (uint32_t rank = 0; rank < job->reach; rank++) {
        struct slots_worker *worker = &job->workers[rank];
        bool has_joined = worker->has_left || (of && rank < of->workers && of->sessions[rank]);
        worker->is_leaving |= worker->state != SLOTS_NONE && !has_joined;
    }
}

static void slots_look_at(struct slots_job *job)
{
    const struct job *of = slots_training(job);
    slots_look_at_training(job, of);
    slots_find_again(job);
    slots_end_unjoined(job, of);
    slots_rest_allow(job, of);
    if (of && !of->failure)
        slots_look_at_speed(job, of);
    if (job->pool->is_missing)
        slots_look_without_pool(job);
    slots_job_hold(job);
}

static void slots_look(struct timer *timer)
{
    struct slots *slots = container_of(timer, struct slots, look);
    struct service *s = slots->service;
    if (s->phase != SERVICE_UP)
        return;
    list_for_each_entry (struct slots_job, job, &slots->jobs, link)
        slots_look_at(job);
    list_for_each_entry (struct slots_site, site, &slots->sites, link) {
        slots_decide(site, (struct scheduler_event){.kind = SCHEDULER_TICK});
        slots_carry_out(site);
    }
    if (!list_is_empty(&slots->jobs))
        timer_start(s->loop, timer, clock_now_ns() + SLOTS_LOOK_NS);
}

/* --- beginning and end --- */

int slots_create(struct service *s)
{
    const char *text = s->options->worker_slots;
    char name[SLOTS_SITE_BYTES + 1];
    uint32_t count;
    s->works->slots = calloc(1, sizeof *s->works->slots);
    if (!s->works->slots)
        return -ENOMEM;
    s->works->slots->service = s;
    list_init(&s->works->slots->sites);
    list_init(&s->works->slots->pools);
    list_init(&s->works->slots->jobs);
    list_init(&s->works->slots->watches);
    timer_init(&s->works->slots->look, slots_look);
    s->works->slots->ended = slots_ended_create();
    if (!s->works->slots->ended)
        return -ENOMEM;
    while (text && *text && (text = slots_parse_site(text, name, &count)))
        if (!slots_create_site(s, name, count))
            return -ENOMEM;
    return 0;
}

void slots_destroy(struct service *s)
{
    if (!s->works || !s->works->slots)
        return;
    timer_stop(&s->works->slots->look);
    list_for_each_safe_entry (struct slots_job, job, &s->works->slots->jobs, link)
        slots_job_free(job);
    list_for_each_safe_entry (struct slots_pool, pool, &s->works->slots->pools, link)
        slots_pool_free(pool);
    list_for_each_safe_entry (struct slots_site, site, &s->works->slots->sites, link) {
        scheduler_destroy(site->scheduler);
        list_remove(&site->link);
        free(site);
    }
    slots_watches_forget(s->works->slots, NULL);
    slots_ended_destroy(s->works->slots->ended);
    free(s->works->slots);
}

/* --- after a restart --- */

/* Returns the site of a row. If the option no longer names the site, the site is created without
 * slots of its own: its workers continue to train, and no further worker is started. */
static struct slots_site *slots_restore_site(struct service *s, const char *name)
{
    struct slots_site *site = slots_find_site(s, name);
    if (site || !*name || strlen(name) > SLOTS_SITE_BYTES)
        return site;
    log_warn("site %s has workers, but no slot: --worker-slots does not name it; no worker starts "
             "there until the service is started with --worker-slots %s=N",
             name, name);
    return slots_create_site(s, name, 0);
}

static struct slots_pool *slots_restore_pool(struct service *s, const struct store_pool_job *row)
{
    struct tenant *tenant = tenants_find(s, row->tenant);
    struct slots_site *site = slots_restore_site(s, row->site);
    struct slots_pool *pool = tenant ? slots_pool_find(s, tenant, row->pool) : NULL;
    if (pool || !tenant || !site)
        return pool;
    pool = slots_pool_create(site, tenant, row->pool, row->node, row->pid);
    if (!pool)
        return NULL;
    pool->is_held = true; /* the jobs are held until the pool has joined again */
    slots_pool_await(pool);
    return pool;
}

int slots_restore_job(struct service *s, const struct store_pool_job *row)
{
    if (row->workers_min < 1 || row->workers_max < row->workers_min ||
        row->workers_max > WORKERS_MAX || row->first > row->workers_max)
        return -EBADMSG;
    struct slots_pool *pool = slots_restore_pool(s, row);
    if (!pool)
        return -EBADMSG;
    struct slots_job *job =
        slots_job_create(pool, row->job, row->study, row->workers_min, row->workers_max);
    if (!job)
        return -ENOMEM;
    job->steps = row->steps;
    job->first = row->first;
    job->is_complete = row->flags & STORE_POOL_JOB_COMPLETE;
    job->is_ending = row->flags & STORE_POOL_JOB_ENDING;
    job->rest->may = row->flags & STORE_POOL_JOB_MAY_REST;
    job->rest->is_ordered = row->flags & STORE_POOL_JOB_RESTS;
    job->rest->is_by_user = row->flags & STORE_POOL_JOB_BY_ORDER;
    job->end_code = row->end_code;
    snprintf(job->end_text, sizeof job->end_text, "%s", row->end_text);
    list_append(&s->works->slots->jobs, &job->link);
    s->works->slots->jobs_count++;
    return 0;
}

int slots_restore_worker(struct service *s, const struct store_pool_worker *row)
{
    struct tenant *tenant = tenants_find(s, row->tenant);
    struct slots_job *job = tenant ? slots_find_job(s, tenant, row->job) : NULL;
    if (!job || row->rank >= job->workers_max || row->slot >= SCHEDULER_SLOTS_MAX ||
        row->incarnation == 0)
        return -EBADMSG;
    job->workers[row->rank] =
        (struct slots_worker){.state = row->flags & STORE_POOL_WORKER_RESTING   ? SLOTS_RESTING
                                       : row->flags & STORE_POOL_WORKER_STARTED ? SLOTS_STARTED
                                                                                : SLOTS_ORDERED,
                              .is_leaving = row->flags & STORE_POOL_WORKER_LEAVING,
                              .leave_stored = row->flags & STORE_POOL_WORKER_LEAVING,
                              .has_joined = row->flags & STORE_POOL_WORKER_JOINED,
                              .has_left = row->flags & STORE_POOL_WORKER_LEFT,
                              .was_lost = row->flags & STORE_POOL_WORKER_LOST,
                              .slot = row->slot,
                              .incarnation = row->incarnation};
    if (row->rank >= job->reach)
        job->reach = row->rank + 1;
    return 0;
}

/* Returns the number of slots that a site needs for its restored workers. */
static uint32_t slots_count_restored(const struct slots_site *site)
{
    uint32_t slots = site->count;
    list_for_each_entry (const struct slots_job, job, &site->service->works->slots->jobs, link) {
        for (uint32_t rank = 0; job->pool->site == site && rank < job->reach; rank++)
            if (slots_has_slot(&job->workers[rank]) && job->workers[rank].slot >= slots)
                slots = job->workers[rank].slot + 1;
    }
    return slots;
}

static void slots_restore_slots(struct slots_job *job)
{
    struct slots_site *site = job->pool->site;
    int error = slots_decide_submit(job, 0);
    for (uint32_t rank = 0; error == 0 && rank < job->reach; rank++)
        if (slots_has_slot(&job->workers[rank]))
            slots_decide(site, (struct scheduler_event){.kind = SCHEDULER_WORKER_FOUND,
                                                        .job = job->id,
                                                        .rank = rank,
                                                        .slot = job->workers[rank].slot});
    if (error == 0 && job->rest->is_ordered)
        slots_decide(site, (struct scheduler_event){.kind = SCHEDULER_REST_FOUND, .job = job->id});
    if (error == 0 && job->rest->is_by_user)
        slots_decide(site,
                     (struct scheduler_event){.kind = SCHEDULER_REST_ORDERED, .job = job->id});
    if (error == 0 && job->is_ending)
        slots_decide(site, (struct scheduler_event){.kind = SCHEDULER_END_ORDERED, .job = job->id});
    if (error == 0)
        return;
    job->end_code = error;
    snprintf(job->end_text, sizeof job->end_text,
             "site %s has no place for its %u workers any more (%s); start the service with more "
             "--worker-slots",
             site->name, job->workers_min, err_text(error));
}

/* Restores the jobs of the site. Slots in excess of the option exist until their restored workers
 * have ended. */
static void slots_restore_site_jobs(struct slots_site *site)
{
    uint32_t slots = slots_count_restored(site), job, rank;
    for (uint32_t at = site->count; at < slots; at++)
        slots_decide(site, (struct scheduler_event){.kind = SCHEDULER_SLOT_FOUND, .slot = at});
    list_for_each_entry (struct slots_job, of, &site->service->works->slots->jobs, link)
        if (of->pool->site == site)
            slots_restore_slots(of);
    for (uint32_t at = site->count; at < slots; at++)
        if (!scheduler_holder(site->scheduler, at, &job, &rank))
            slots_decide(site, (struct scheduler_event){.kind = SCHEDULER_SLOT_LOST, .slot = at});
}

void slots_restored(struct service *s)
{
    list_for_each_entry (struct slots_site, site, &s->works->slots->sites, link)
        slots_restore_site_jobs(site);
    slots_look_soon(s);
}
