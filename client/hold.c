/* Owns what a worker knows of iterations, and holds its updates at the end of one when the
 * coordinator asks for that. One rank that begins no update is enough: no round of all ranks begins
 * without it. Must never hold on once the coordinator is away. README: L33. */
#include "client/hold.h"

#include "client/job.h"

#include <errno.h>

#define ROW 2 /* so many iterations in a row had each tensor: that was no accident */

static bool counts(const struct gp_tensor *t)
{
    return t->terms.rule && t->is_routed && !t->failure.code && terms_are_for_all(&t->terms);
}

/* ---- iterations ---- */

uint64_t hold_iteration_of(const struct gp_job *job, const gp_item *items, size_t count)
{
    uint64_t iteration = job->hold.iteration;
    for (size_t i = 0; i < count; i++) {
        const struct gp_tensor *t = items[i].tensor;
        if (iteration == 0 || (t && t->job == job && t->iteration == iteration))
            return iteration + 1;
    }
    return iteration;
}

static const struct gp_tensor *find_lacking(const struct gp_job *job)
{
    list_for_each (node, &job->tensors) {
        const struct gp_tensor *t = list_entry(node, struct gp_tensor, node);
        if (counts(t) && t->iteration != job->hold.iteration)
            return t;
    }
    return NULL;
}

static void end_iteration(struct gp_job *job)
{
    struct hold *hold = &job->hold;
    const struct gp_tensor *lacking = find_lacking(job);
    if (lacking && lacking->iteration > 0)
        err_set(&hold->doubt, -EOPNOTSUPP, "tensor '%.255s' had no update while others had one",
                lacking->name);
    else if (lacking)
        err_set(&hold->doubt, -EAGAIN, "tensor '%.255s' had no update so far", lacking->name);
    hold->in_a_row = lacking ? 0 : hold->in_a_row + (hold->in_a_row < ROW);
    hold->has_failed |= hold->id && hold->iteration == hold->last && hold->in_a_row < ROW;
}

void hold_note_updates(struct gp_job *job, const gp_item *items, size_t count, uint64_t iteration)
{
    if (job->hold.iteration > 0 && iteration > job->hold.iteration)
        end_iteration(job);
    job->hold.iteration = iteration;
    for (size_t i = 0; i < count; i++)
        items[i].tensor->iteration = iteration;
    hold_check(job);
}

void hold_note_change(struct gp_job *job)
{
    job->hold.in_a_row = 0;
    err_set(&job->hold.doubt, -EAGAIN,
            "parameters were set, or a tensor declared, less than %d iterations ago", ROW);
    hold_check(job);
}

bool hold_stops(const struct gp_tensor *t)
{
    const struct hold *hold = &t->job->hold;
    return hold->id && t->next.iteration > hold->last;
}

/* ---- what is told ---- */

static void told(struct control_call *call, const envelope *reply, const struct err *err);

static void tell(struct gp_job *job)
{
    struct hold *hold = &job->hold;
    hold->telling = hold->state;
    hold->told = hold->doubt;
    gradpool__wire__held_request__init(&hold->report);
    hold->report.hold = hold->id;
    hold->report.state = hold->state;
    if (hold->state == GRADPOOL__WIRE__HOLD_STATE__HOLD_FAILED) {
        hold->report.code = hold->told.code;
        hold->report.text = hold->told.text;
    }
    hold->call = (struct control_call){.request = GRADPOOL__WIRE__ENVELOPE__INIT, .done = told};
    hold->call.request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_HELD_REQUEST;
    hold->call.request.held_request = &hold->report;
    hold->is_telling = true;
    control_post(job->control, &hold->call);
}

/* One report at a time: what has changed meanwhile is told next. */
static void told(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct hold *hold = container_of(call, struct hold, call);
    struct gp_job *job = container_of(hold, struct gp_job, hold);
    pthread_mutex_lock(&job->lock);
    hold->is_telling = false;
    if (!err && hold->id && (hold->report.hold != hold->id || hold->telling != hold->state))
        tell(job);
    pthread_mutex_unlock(&job->lock);
}

static bool is_under_way(const struct gp_tensor *t)
{
    bool is_queued = t->is_queued && !hold_stops(t);
    return t->without_result > 0 || t->is_starting || is_queued;
}

static int find_state(const struct gp_job *job)
{
    const struct hold *hold = &job->hold;
    if (hold->has_failed)
        return GRADPOOL__WIRE__HOLD_STATE__HOLD_FAILED;
    list_for_each (node, &job->tensors) {
        const struct gp_tensor *t = list_entry(node, struct gp_tensor, node);
        if (counts(t) && is_under_way(t))
            return GRADPOOL__WIRE__HOLD_STATE__HOLD_GOES_ON;
    }
    if (hold->iteration == hold->last && find_lacking(job))
        return GRADPOOL__WIRE__HOLD_STATE__HOLD_GOES_ON;
    return hold->in_a_row == ROW ? GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED
                                 : GRADPOOL__WIRE__HOLD_STATE__HOLD_RESTS;
}

void hold_check(struct gp_job *job)
{
    struct hold *hold = &job->hold;
    if (!hold->id)
        return;
    int state = find_state(job);
    if (state == hold->state)
        return;
    hold->state = state;
    if (!hold->is_telling)
        tell(job);
}

/* ---- what is asked for ---- */

void hold_take(struct gp_job *job, const Gradpool__Wire__Hold *wish)
{
    struct hold *hold = &job->hold;
    if (wish->is_over) {
        if (wish->hold != 0 && wish->hold != hold->id)
            return; /* of one that another has followed */
        hold->id = 0;
        push_begin_held(job);
        return;
    }
    hold->id = wish->hold;
    hold->last = hold->iteration;
    hold->state = GRADPOOL__WIRE__HOLD_STATE__HOLD_GOES_ON;
    hold->has_failed = false;
    push_begin_held(job); /* what a former one held, if that was of an earlier iteration */
    hold_check(job);
}
