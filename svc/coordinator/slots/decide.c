/* Passes events to the scheduler of a site (packer/elastic), and sets the scheduler's actions in
 * the workers of jobs. This file sends and stores nothing: orders.c does so after all events of a
 * message. */
#include "svc/base/hash.h"
#include "svc/base/log.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <stdio.h>

static struct slots_job *slots_find_id(const struct slots_site *site, uint32_t id)
{
    list_for_each_entry (struct slots_job, job, &site->service->works->slots->jobs, link)
        if (job->id == id)
            return job;
    return NULL;
}

/* Writes the text of the decision, with the speeds before and after it, for `gradpool explain`. */
static void slots_explain(struct slots_job *job, const struct scheduler_action *action)
{
    struct service *s = job->pool->service;
    const char *site = job->pool->site->name;
    bool is_start = action->verb != SCHEDULER_LEAVE;
    if (action->verb == SCHEDULER_REST)
        snprintf(job->decision, sizeof job->decision,
                 "rests on site %.64s: %.2f times the speed of one worker before%s", site,
                 action->before, job->rest->is_by_user ? ", by order" : ", to make room");
    else if (is_start && action->before == 0)
        snprintf(job->decision, sizeof job->decision,
                 "started with %u worker%s on site %.64s, for %.2f times the speed of one worker",
                 action->workers, action->workers == 1 ? "" : "s", site, action->after);
    else
        snprintf(job->decision, sizeof job->decision,
                 "%s to %u worker%s on site %.64s: %.2f times the speed of one worker, before %.2f",
                 is_start ? "grown" : "shrunk", action->workers, action->workers == 1 ? "" : "s",
                 site, action->after, action->before);
    job->decided_ns = clock_now_ns();
    events_note(s->events, "resize", "job %s: %s", job->name, job->decision);
}

static void slots_act(struct slots_site *site, const struct scheduler_action *action)
{
    struct slots_job *job = slots_find_id(site, action->job);
    if (action->verb == SCHEDULER_LANES || !job || action->rank >= job->workers_max)
        return; /* no action for lanes: the scheduler gets lane times of 0 */
    struct slots_worker *worker = &job->workers[action->rank];
    if (action->verb == SCHEDULER_REST)
        slots_rest_begin(job);
    else if (action->verb == SCHEDULER_LEAVE)
        worker->is_leaving = true;
    else if (!slots_rest_wake(job, action->rank, action->slot))
        *worker = (struct slots_worker){.state = SLOTS_WANTED, .slot = action->slot};
    if (action->rank >= job->reach)
        job->reach = action->rank + 1;
    if (!job->is_ending)
        slots_explain(job, action);
    site->has_news = true;
}

int slots_decide(struct slots_site *site, struct scheduler_event event)
{
    const struct scheduler_action *actions = NULL;
    event.now_ns = clock_now_ns();
    int count = scheduler_step(site->scheduler, &event, &actions);
    for (int i = 0; i < count; i++)
        slots_act(site, &actions[i]);
    if (count == -ENOMEM)
        log_error("site %s: gradpool serve has no memory for a decision; raise its memory limit",
                  site->name);
    return count < 0 ? count : 0;
}

static uint32_t slots_tenant_number(const struct service *s, const struct tenant *tenant)
{
    uint32_t number = 0;
    list_for_each_entry (const struct tenant, other, &s->door->tenants, link) {
        if (other == tenant)
            break;
        number++;
    }
    return number;
}

/* Returns the study of the job for the scheduler. A job without a study is a study of its own, and
 * gets a number that no named study has. */
static uint32_t slots_study_number(const struct slots_job *job)
{
    return *job->study ? hash_text(job->study) | 1u << 31 : job->id & ~(1u << 31);
}

bool slots_must_hold(const struct slots_job *job)
{
    return job->pool->is_held || job->is_fixed || job->is_complete;
}

int slots_decide_submit(struct slots_job *job, uint32_t followers)
{
    struct scheduler_job wants = {.id = job->id,
                                  .tenant =
                                      slots_tenant_number(job->pool->service, job->pool->tenant),
                                  .study = slots_study_number(job),
                                  .workers_min = job->workers_min,
                                  .workers_max = job->workers_max,
                                  .steps = job->steps,
                                  .never_rests = true, /* slots_rest_allow() changes this */
                                  .is_held = slots_must_hold(job)};
    job->is_held = wants.is_held;
    job->rest->is_allowed = false;
    return slots_decide(job->pool->site, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED,
                                                                  .submitted = &wants,
                                                                  .followers = followers});
}
