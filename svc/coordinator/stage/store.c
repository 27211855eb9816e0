/* Creates, stores, restores and frees the stages of a job. The row of the present stage is stored
 * before any lane or rank receives the stage (K1). After a restart the ranks send all other state
 * again. */
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/job/tensor.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/stage/internal.h"
#include "svc/wire/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Stores the rounds of the tensors whose ranks change in this stage, because members that enter
 * need these rounds after a crash, too (K175). */
static void stages_put_rounds(const struct stages *s)
{
    struct store_row row;
    job_each_tensor (tensor, s->job) {
        if (tensor->failure || !members_suit_stages(tensor) ||
            memcmp(tensor->members, s->members, sizeof s->members) == 0)
            continue;
        tensor_row(tensor, &row);
        store_put(s->job->service->store, &row);
    }
}

/* The present stage, as it is stored in the column for the terms of a tensor. The columns of the
 * name and of the members have the stage's name and members. */
struct stage_stored {
    uint64_t number, first_clock, cursor;
    uint32_t workers, workers_min, workers_max, goal, visit, consistency, staleness, trial_steps;
    uint8_t padding[56]; /* always 0 */
};
_Static_assert(sizeof(struct stage_stored) == STORE_TERMS_BYTES, "a blob of fixed length");

static void stages_repeat(struct timer *timer)
{
    stages_tell_lanes(container_of(timer, struct stages, timer));
}

static struct stages *stages_create(struct job *job)
{
    struct stages *s = calloc(1, sizeof *s + sizeof *s->terms + sizeof *s->next + sizeof *s->times);
    if (!s)
        return NULL;
    s->next = (struct stage_next *)(s + 1);
    s->times = (struct stage_times *)(s->next + 1);
    s->terms = (struct stage_terms *)(s->times + 1);
    s->ranks = calloc(job->workers, sizeof *s->ranks);
    if (!s->ranks) {
        free(s);
        return NULL;
    }
    s->job = job;
    s->first_clock = 1;
    s->is_open = s->is_told = true;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        ranks_add(s->members, rank);
    list_init(&s->plans);
    timer_init(&s->timer, stages_repeat);
    job->ranks->stages = s;
    return s;
}

struct stages *stages_of(struct job *job)
{
    return job->ranks->stages ? job->ranks->stages : stages_create(job);
}

void stages_free(struct job *job)
{
    struct stages *s = job->ranks->stages;
    if (!s)
        return;
    timer_stop(&s->timer);
    list_for_each_safe_entry (struct stage_plan, plan, &s->plans, link) {
        list_remove(&plan->link);
        free(plan);
    }
    free(s->lanes);
    free(s->ranks);
    free(s);
    job->ranks->stages = NULL;
    job->ranks->stage = NULL;
}

int stages_put(struct stages *s, struct err *err)
{
    static const uint8_t none[STORE_RANKS_BYTES];
    const struct stage_terms *t = s->terms;
    struct job *job = s->job;
    struct stage_stored stored = {.number = s->number,
                                  .first_clock = s->first_clock,
                                  .cursor = s->cursor,
                                  .workers = t->workers,
                                  .workers_min = t->workers_min,
                                  .workers_max = t->workers_max,
                                  .goal = t->goal,
                                  .visit = t->visit,
                                  .consistency = t->consistency,
                                  .staleness = t->staleness,
                                  .trial_steps = s->trial_steps};
    struct store_row row, of_job;
    if (s->row == 0)
        s->row = job->next_tensor++;
    jobs_row(job, &of_job);
    row = (struct store_row){.table = STORE_TENSOR};
    row.tensor = (struct store_tensor){.job = job->id,
                                       .tensor = s->row,
                                       .name = t->name,
                                       .dtype = STORE_STAGE_DTYPE,
                                       .failure = "",
                                       .ranks = none,
                                       .members = (const uint8_t *)s->members,
                                       .terms = &stored};
    store_begin(job->service->store);
    store_put(job->service->store, &of_job);
    store_put(job->service->store, &row);
    stages_put_rounds(s);
    return store_commit(job->service->store, err);
}

/* Checks the row, because the file may have changed since the row was stored. */
static bool stage_row_is_sound(const struct job *job, const struct store_tensor *row,
                               const struct stages *s)
{
    struct err err;
    uint64_t beyond = 0;
    for (uint32_t rank = job->workers; rank < RANKS_WORDS * 64; rank++)
        beyond |= ranks_have(s->members, rank);
    return strlen(row->name) <= STAGE_NAME_BYTES_MAX && !beyond && !ranks_are_none(s->members) &&
           s->first_clock > 0 && s->first_clock < RECORD_CLOCK_MOST &&
           (!*s->terms->name || stage_terms_check(s->terms, &err) == 0);
}

int stages_restore(struct service *service, const struct store_tensor *row)
{
    struct job *job = jobs_find_id(service, row->job);
    struct stage_stored stored;
    struct stages *s = job ? stages_of(job) : NULL;
    if (!s)
        return job ? -ENOMEM : -EBADMSG;
    memcpy(&stored, row->terms, sizeof stored);
    memcpy(s->members, row->members, sizeof s->members);
    s->row = row->tensor;
    s->number = stored.number;
    s->first_clock = stored.first_clock;
    s->cursor = stored.cursor;
    s->trial_steps = stored.trial_steps;
    *s->terms = (struct stage_terms){.workers = stored.workers,
                                     .workers_min = stored.workers_min,
                                     .workers_max = stored.workers_max,
                                     .goal = stored.goal,
                                     .visit = stored.visit,
                                     .consistency = stored.consistency,
                                     .staleness = stored.staleness};
    memcpy(s->terms->name, row->name, strnlen(row->name, STAGE_NAME_BYTES_MAX));
    s->is_told = false; /* some lane may not have received the members */
    if (!stage_row_is_sound(job, row, s))
        return -EBADMSG;
    job->ranks->stage = s->number > 0 ? s->members : NULL;
    return 0;
}
