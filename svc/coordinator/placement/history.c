/* Measurements of earlier runs. Owns their list, which is also in the store. No request fails
 * because of an error in this file: without a stored measurement the job is measured again
 * (K16). */
#include "svc/coordinator/placement/history.h"

#include "svc/base/hash.h"
#include "svc/base/log.h"
#include "svc/coordinator/placement/ask_packer.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The store contains the bytes of this struct. */
struct past_tensor {
    uint32_t hash; /* hash of the tensor's name */
    uint32_t lane_ns;
};

struct past {
    struct list link;
    char *tenant, *job;
    uint32_t workers, layout;
    uint64_t turn; /* larger values are newer */
    struct profile_times times;
    bool is_alone; /* the job was measured without other jobs on its lanes */
    struct narrow narrow;
    struct past_tensor *tensors; /* sorted by hash */
    size_t tensors_count;
};

struct past_jobs {
    struct list jobs; /* list of all jobs, the newest last */
    uint64_t turn;    /* turn of the newest job */
};

static void past_free(struct past *past)
{
    if (!past)
        return;
    list_remove(&past->link);
    free(past->tenant);
    free(past->job);
    free(past->tensors);
    free(past);
}

static struct past *past_create(const char *tenant, const char *job, uint32_t workers,
                                uint32_t layout)
{
    struct past *past = calloc(1, sizeof *past);
    if (!past)
        return NULL;
    list_init(&past->link);
    past->tenant = strdup(tenant);
    past->job = strdup(job);
    past->workers = workers;
    past->layout = layout;
    if (past->tenant && past->job)
        return past;
    past_free(past);
    return NULL;
}

static struct past *find(const struct job *job)
{
    list_for_each_entry (struct past, past, &job->service->history->jobs, link)
        if (past->layout == job->terms->layout && past->workers == job->workers &&
            strcmp(past->job, job->name) == 0 && strcmp(past->tenant, job->tenant->key.tenant) == 0)
            return past;
    return NULL;
}

uint32_t profiles_layout(struct tensor *const *tensors, size_t count)
{
    uint32_t layout = 1;
    char text[64];
    for (size_t i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%u %u %u %" PRIu64, layout, hash_text(tensors[i]->name),
                 tensors[i]->dtype, tensors[i]->elements);
        layout = hash_text(text);
    }
    return layout ? layout : 1;
}

static int compare_tensors(const void *a, const void *b)
{
    uint32_t left = ((const struct past_tensor *)a)->hash,
             right = ((const struct past_tensor *)b)->hash;
    return left < right ? -1 : left > right;
}

void profiles_recall(struct job *job, struct tensor *const *tensors, size_t count)
{
    const struct past *past = find(job);
    if (!past)
        return;
    /* A complete list lacks only tensors that took almost no time. A tensor that is not in the list
     * therefore gets the time 1 ns; 0 would stand for an unknown time. */
    bool is_whole = past->tensors_count > 0 && past->tensors_count < PROFILES_TENSORS_MAX;
    if (job->profile->used.period_ns == 0)
        profile_recall(job->profile, &past->times, past->is_alone, (uint32_t)job_own_lanes(job),
                       &past->narrow);
    job->figures->knows_tensors = job->figures->knows_tensors || past->tensors_count > 0;
    for (size_t i = 0; i < count; i++) {
        struct past_tensor key = {.hash = hash_text(tensors[i]->name)};
        const struct past_tensor *found =
            past->tensors_count
                ? bsearch(&key, past->tensors, past->tensors_count, sizeof key, compare_tensors)
                : NULL;
        tensors[i]->lane_ns = found ? found->lane_ns : is_whole ? 1 : 0;
    }
}

/* --- storing --- */

/* Returns the present lane time of the job's tensors, divided by the sum of the lane times of its
 * single tensors. The times of single tensors are measured only once, so their sum may be out of
 * date. */
static double scale_of(const struct job *job)
{
    double all_ns = 0;
    for (size_t i = 0; i < job->tensors_count; i++)
        all_ns += (double)job->tensors[i]->lane_ns;
    return all_ns > 0 ? (double)job_tensors_ns(job) / all_ns : 1;
}

static int take_tensors(struct past *past, const struct job *job)
{
    double scale = scale_of(job);
    size_t most =
        job->tensors_count < PROFILES_TENSORS_MAX ? job->tensors_count : PROFILES_TENSORS_MAX;
    struct past_tensor *tensors = calloc(most ? most : 1, sizeof *tensors);
    if (!tensors)
        return -ENOMEM;
    size_t count = 0;
    for (size_t i = 0; i < job->tensors_count && count < most; i++) {
        uint64_t lane_ns = (uint64_t)((double)job->tensors[i]->lane_ns * scale);
        if (lane_ns > 0)
            tensors[count++] =
                (struct past_tensor){hash_text(job->tensors[i]->name),
                                     lane_ns < UINT32_MAX ? (uint32_t)lane_ns : UINT32_MAX};
    }
    if (count > 0)
        qsort(tensors, count, sizeof *tensors, compare_tensors);
    free(past->tensors);
    past->tensors = tensors;
    past->tensors_count = count;
    return 0;
}

static void past_row(const struct past *past, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_PROFILE};
    ret_row->profile = (struct store_profile){
        .tenant = past->tenant,
        .job = past->job,
        .workers = past->workers,
        .layout = past->layout,
        .turn = past->turn,
        .period_ns = past->times.period_ns,
        .busiest_ns = past->times.busiest_ns,
        .lanes_ns = past->times.lanes_ns,
        .span_ns = past->times.span_ns,
        .burst_ns = past->times.burst_ns,
        .slack_ns = past->times.slack_ns,
        .is_alone = past->is_alone,
        .few = past->narrow.few,
        .enough = past->narrow.enough,
        .spent_ppm = past->narrow.spent_ppm,
        .tensors = {past->tensors, (uint32_t)(past->tensors_count * sizeof *past->tensors)}};
}

/* Stores the measurements, and removes the oldest ones in excess of PROFILES_MAX. */
static void put(struct service *s, const struct past *past)
{
    struct store_row row;
    struct err err;
    size_t count = 0;
    list_for_each (node, &s->history->jobs)
        count++;
    store_begin(s->store);
    past_row(past, &row);
    store_put(s->store, &row);
    for (; count > PROFILES_MAX; count--) {
        struct past *oldest = list_entry(s->history->jobs.next, struct past, link);
        past_row(oldest, &row);
        store_erase(s->store, &row);
        past_free(oldest);
    }
    if (store_commit(s->store, &err) < 0)
        log_warn("the measurements of job %s could not be stored, and are lost when gradpool serve "
                 "ends: %s",
                 past->job, err.text);
}

void profiles_keep(const struct job *job)
{
    struct service *s = job->service;
    struct profile_times known = profile_known(job->profile);
    if (job->profile->now.period_ns == 0 || job->terms->layout == 0)
        return;
    struct past *past = find(job);
    if (!past)
        past = past_create(job->tenant->key.tenant, job->name, job->workers, job->terms->layout);
    if (!past || take_tensors(past, job) < 0) {
        if (past && list_is_empty(&past->link))
            past_free(past);
        return log_warn("gradpool serve has no memory for the measurements of job %s, and does not "
                        "store them; raise its memory limit",
                        job->name);
    }
    past->times = known;
    /* the lane time of tables is left out, because it is measured again in a later run */
    past->times.lanes_ns = job_tensors_ns(job);
    past->is_alone = profile_knows_alone(job->profile);
    past->narrow = job->profile->narrow;
    past->turn = ++s->history->turn;
    list_remove(&past->link);
    list_append(&s->history->jobs, &past->link);
    put(s, past);
}

/* --- restoring --- */

/* Inserts by age, because the store returns rows in the order of names. */
static void insert(struct service *s, struct past *past)
{
    struct list *at = &s->history->jobs;
    while (at->previous != &s->history->jobs &&
           list_entry(at->previous, struct past, link)->turn > past->turn)
        at = at->previous;
    list_insert_before(at, &past->link);
}

int profiles_restore(struct service *s, const struct store_profile *row)
{
    if (row->tensors.bytes % sizeof(struct past_tensor) != 0 || row->period_ns == 0)
        return -EBADMSG;
    struct past *past = past_create(row->tenant, row->job, row->workers, row->layout);
    if (!past)
        return -ENOMEM;
    past->tensors = malloc(row->tensors.bytes ? row->tensors.bytes : 1);
    if (!past->tensors) {
        past_free(past);
        return -ENOMEM;
    }
    if (row->tensors.bytes > 0)
        memcpy(past->tensors, row->tensors.data, row->tensors.bytes);
    past->tensors_count = row->tensors.bytes / sizeof *past->tensors;
    past->times = (struct profile_times){.period_ns = row->period_ns,
                                         .busiest_ns = row->busiest_ns,
                                         .lanes_ns = row->lanes_ns,
                                         .span_ns = row->span_ns,
                                         .burst_ns = row->burst_ns,
                                         .slack_ns = row->slack_ns};
    past->is_alone = row->is_alone != 0;
    past->narrow = (struct narrow){row->few, row->enough, row->spent_ppm};
    past->turn = row->turn;
    if (row->turn > s->history->turn)
        s->history->turn = row->turn;
    insert(s, past);
    return 0;
}

int profiles_create(struct service *s)
{
    s->history = calloc(1, sizeof *s->history);
    if (!s->history)
        return -ENOMEM;
    list_init(&s->history->jobs);
    return 0;
}

void profiles_destroy(struct service *s)
{
    if (!s->history)
        return;
    list_for_each_safe (node, &s->history->jobs)
        past_free(list_entry(node, struct past, link));
    free(s->history);
}
