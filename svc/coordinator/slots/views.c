/* Sites and jobs of pools in the replies to `jobs` and `explain`. Only stored state is used. */
#include "svc/coordinator/slots/internal.h"

#include "svc/base/text.h"

#include <stdio.h>
#include <string.h>

static char *slots_copy(slots_take_fn take, void *context, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = take(context, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static const char *slots_state_name(const struct slots_job *job)
{
    struct scheduler_view view;
    if (job->is_ending || job->is_complete)
        return "ending";
    if (scheduler_view(job->pool->site->scheduler, job->id, &view) < 0)
        return "waiting";
    if (view.state == SCHEDULER_RESTING)
        return "resting";
    return view.state == SCHEDULER_WAITING ? "waiting" : view.is_probing ? "probing" : "running";
}

/* Appends the reason for which the number of workers does not change. */
static void slots_append_held(const struct slots_job *job, char *text, size_t text_bytes)
{
    uint32_t removed_s = slots_removed_in_s(job);
    if (job->pool->is_held)
        text_append(text, text_bytes, "; its pool is gone, so its workers stay");
    else if (job->is_fixed && job->workers_max > job->workers_min)
        text_append(text, text_bytes, "; it joined without workers_max, so its workers stay");
    if (removed_s > 0)
        text_append(text, text_bytes,
                    "; no worker has joined, so the job is removed in %u s unless its pool is "
                    "started again",
                    removed_s);
}

/* Writes the sentence about the job: the last decision, and the reasons for which the number of
 * workers does not change. */
static void slots_sentence(const struct slots_job *job, char *ret_text, size_t text_bytes)
{
    const char *waits = NULL;
    for (uint32_t rank = 0; rank < job->reach && !waits; rank++)
        waits = job->workers[rank].waits;
    snprintf(ret_text, text_bytes, "%s",
             *job->decision ? job->decision : "no decision since the coordinator's start");
    slots_append_held(job, ret_text, text_bytes);
    if (waits)
        text_append(ret_text, text_bytes, "; a worker waits: %s", waits);
}

static void slots_count(const struct slots_job *job, WIRE(PoolJobView) * view)
{
    for (uint32_t rank = 0; rank < job->reach; rank++) {
        const struct slots_worker *worker = &job->workers[rank];
        view->workers += slots_has_slot(worker) && !worker->is_leaving;
        view->leaving += slots_has_slot(worker) && worker->is_leaving;
    }
}

static WIRE(PoolJobView) *
    slots_describe(const struct slots_job *job, slots_take_fn take, void *context)
{
    WIRE(PoolJobView) *view = take(context, sizeof *view);
    char text[3 * SLOTS_TEXT_BYTES];
    if (!view)
        return NULL;
    slots_sentence(job, text, sizeof text);
    *view = MESSAGE_PART(PoolJobView, pool_job_view, .job = slots_copy(take, context, job->name),
                         .tenant = slots_copy(take, context, job->pool->tenant->key.tenant),
                         .site = slots_copy(take, context, job->pool->site->name),
                         .state = slots_copy(take, context, slots_state_name(job)),
                         .workers_min = job->workers_min, .workers_max = job->workers_max,
                         .decision = slots_copy(take, context, text),
                         .decided_ns = job->decided_ns ? clock_now_ns() - job->decided_ns : 0);
    slots_count(job, view);
    return view->job && view->tenant && view->site && view->state && view->decision ? view : NULL;
}

bool slots_view_job(const struct job *job, slots_take_fn take, void *context, WIRE(JobView) * view)
{
    const struct slots_job *of = slots_find_job(job->service, job->tenant, job->name);
    if (!of)
        return true;
    view->pool = slots_describe(of, take, context);
    return view->pool != NULL;
}

bool slots_view_queued(const struct service *s, const struct tenant *only, const char *name,
                       slots_take_fn take, void *context, WIRE(JobsReply) * reply)
{
    reply->queued = take(context, (s->works->slots->jobs_count + 1) * sizeof *reply->queued);
    list_for_each_entry (const struct slots_job, job, &s->works->slots->jobs, link) {
        bool is_meant = (!only || job->pool->tenant == only) &&
                        (!*name || strcmp(name, job->name) == 0) && !slots_training(job);
        WIRE(PoolJobView) *view =
            reply->queued && is_meant ? slots_describe(job, take, context) : NULL;
        if (view)
            reply->queued[reply->n_queued++] = view;
        else if (is_meant)
            return false;
    }
    return reply->queued != NULL;
}

/* Counts the waiting jobs of the site. Also counts the jobs that were submitted before this job,
 * and this job itself. */
static void slots_find_place(const struct slots_job *of, uint32_t *ret_place, uint32_t *ret_waiting)
{
    const struct slots_site *site = of->pool->site;
    bool is_behind = false;
    *ret_place = *ret_waiting = 0;
    list_for_each_entry (const struct slots_job, job, &site->service->works->slots->jobs, link) {
        struct scheduler_view view;
        if (job->pool->site != site || scheduler_view(site->scheduler, job->id, &view) < 0 ||
            view.state != SCHEDULER_WAITING)
            continue;
        (*ret_waiting)++;
        *ret_place += !is_behind;
        is_behind |= job == of;
    }
}

static void slots_explain_job(const struct slots_job *job, char *text, size_t text_bytes)
{
    const struct slots_site *site = job->pool->site;
    const struct scheduler_totals totals = scheduler_totals(site->scheduler);
    char sentence[3 * SLOTS_TEXT_BYTES];
    const char *state = slots_state_name(job);
    uint32_t place, waiting;
    slots_sentence(job, sentence, sizeof sentence);
    slots_find_place(job, &place, &waiting);
    text_append(text, text_bytes, "%sjob %s ", *text ? "; " : "", job->name);
    if (strcmp(state, "waiting") == 0)
        text_append(text, text_bytes,
                    "is queued on site %s, place %u of %u in the order of submission; it waits for "
                    "%u slot%s, and %u of %u slots are free",
                    site->name, place, waiting, job->workers_min, text_plural(job->workers_min),
                    totals.free, totals.slots);
    else
        text_append(text, text_bytes, "is %s on site %s, and no worker has joined", state,
                    site->name);
    text_append(text, text_bytes, " (%s)", sentence);
}

void slots_explain_queued(const struct service *s, const struct tenant *only, const char *name,
                          char *ret_text, size_t text_bytes)
{
    *ret_text = '\0';
    list_for_each_entry (const struct slots_job, job, &s->works->slots->jobs, link)
        if ((!only || job->pool->tenant == only) && strcmp(name, job->name) == 0 &&
            !slots_training(job))
            slots_explain_job(job, ret_text, text_bytes);
}

static void slots_count_site(const struct slots_site *site, WIRE(SiteView) * view)
{
    const struct slots *slots = site->service->works->slots;
    list_for_each_entry (const struct slots_job, job, &slots->jobs, link) {
        struct scheduler_view of;
        if (job->pool->site != site)
            continue;
        for (uint32_t rank = 0; rank < job->reach; rank++) {
            const struct slots_worker *worker = &job->workers[rank];
            view->held += slots_has_slot(worker) && !worker->is_leaving;
            view->leaving += slots_has_slot(worker) && worker->is_leaving;
        }
        view->waiting +=
            scheduler_view(site->scheduler, job->id, &of) == 0 && of.state == SCHEDULER_WAITING;
    }
    list_for_each_entry (const struct slots_pool, pool, &slots->pools, link)
        view->pools += pool->site == site && pool->peer;
}

bool slots_view_sites(const struct service *s, slots_take_fn take, void *context,
                      WIRE(JobsReply) * reply)
{
    size_t count = 1;
    list_for_each (node, &s->works->slots->sites)
        count++;
    reply->sites = take(context, count * sizeof *reply->sites);
    list_for_each_entry (const struct slots_site, site, &s->works->slots->sites, link) {
        WIRE(SiteView) *view = reply->sites ? take(context, sizeof *view) : NULL;
        if (!view)
            return false;
        *view = MESSAGE_PART(SiteView, site_view, .site = (char *)site->name, .slots = site->count,
                             .grown = site->grown, .shrunk = site->shrunk);
        slots_count_site(site, view);
        reply->sites[reply->n_sites++] = view;
    }
    return reply->sites != NULL;
}
