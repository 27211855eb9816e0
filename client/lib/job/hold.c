/* Counts a worker's iterations, and holds its rounds at the end of an iteration on request of the
 * coordinator. One held rank stops the job, because a round of all ranks needs every rank. The hold
 * also ends when the connection to the coordinator ends. README: L33. */
#include "client/lib/job/hold.h"

#include "client/lib/elastic/steps.h"
#include "client/lib/job/tensor.h"

#include <errno.h>
#include <string.h>

#define ROUNDS GRADPOOL__WIRE__HOLD_SCOPE__HOLD_ROUNDS
/* The end of an iteration is known after this number of consecutive iterations in which each tensor
 * had one round. */
#define ROW 2

static bool hold_counts(const struct gp_tensor *t, uint32_t scope)
{
    return t->scopes >> scope & 1 && !t->failure.code;
}

/* Returns whether the steps of a deal are the iterations. Each iteration then begins with the
 * record of a step. */
static bool hold_has_steps(const struct gp_job *job, uint32_t scope)
{
    return scope == ROUNDS && job->steps && job->steps->record;
}

/* ---- iterations ---- */

static bool is_counted(uint8_t operation, uint32_t scope)
{
    bool sets = operation == RECORD_BROADCAST || operation == RECORD_SEND;
    if (scope == GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES)
        return operation == RECORD_UPDATE;
    return !sets && !is_of_state(operation);
}

static bool sets_parameters(uint8_t operation)
{
    return operation == RECORD_BROADCAST || operation == RECORD_RESTORE;
}

static uint64_t find_iteration(const struct gp_job *job, const gp_item *items, size_t count,
                               uint32_t scope)
{
    uint64_t now = job->hold.scopes[scope].now;
    bool is_any = false, has_steps = hold_has_steps(job, scope);
    if (has_steps && items[0].tensor == job->steps->record)
        return now + 1;
    for (size_t i = 0; i < count; i++) {
        const struct gp_tensor *t = items[i].tensor;
        if (!t || t->job != job || !hold_counts(t, scope))
            continue;
        if (!has_steps && (now == 0 || t->iterations[scope] == now))
            return now + 1;
        is_any = true;
    }
    return is_any ? now : 0;
}

/* Finds a tensor without a round in the present iteration; NULL: every tensor has a round. A
 * tensor that never had a round (frozen parameters) belongs to no iteration. The counters save a
 * search through thousands of tensors in most iterations. */
static const struct gp_tensor *find_lacking(const struct gp_job *job, uint32_t scope)
{
    if (job->hold.scopes[scope].pushed == job->hold.scopes[scope].parts)
        return NULL;
    for_each_tensor (t, job) {
        uint64_t last = t->iterations[scope];
        if (hold_counts(t, scope) && last > 0 && last != job->hold.scopes[scope].now)
            return t;
    }
    return NULL;
}

/* Returns whether a tensor may still get its first round in the present iteration, the first one
 * after a declare. Only a snapshot of updates waits for such tensors. */
static bool may_lack(const struct gp_job *job, uint32_t scope)
{
    const struct iterations *its = &job->hold.scopes[scope];
    if (scope != GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES || its->now == 0 || its->in_a_row != 0)
        return false;
    for_each_tensor (t, job) {
        if (hold_counts(t, scope) && t->iterations[scope] == 0)
            return true;
    }
    return false;
}

/* Returns the iteration of a push that sets parameters: 0 (no iteration), or the iteration after
 * the last permitted one, so that the hold stops the push. Such a push must wait if the last
 * permitted iteration is over: otherwise only some lanes would have the new parameters during the
 * hold. */
static uint64_t hold_find_end(const struct gp_job *job, const gp_item *items, size_t count,
                              uint32_t scope)
{
    const struct hold *hold = &job->hold;
    const struct iterations *its = &hold->scopes[scope];
    if (!hold->id || hold->scope != scope || hold_has_steps(job, scope))
        return 0;
    bool has_ended = its->now > hold->last || (its->in_a_row == ROW && !find_lacking(job, scope));
    for (size_t i = 0; i < count && (hold->keeps_sets || has_ended); i++) {
        const struct gp_tensor *t = items[i].tensor;
        if (t && t->job == job && hold_counts(t, scope))
            return hold->last + 1;
    }
    return 0;
}

void hold_find_iterations(const struct gp_job *job, const gp_item *items, size_t count,
                          uint8_t operation, uint64_t *ret_iterations)
{
    for (uint32_t scope = 0; scope < HOLD_SCOPES; scope++) {
        ret_iterations[scope] = 0;
        if (sets_parameters(operation))
            ret_iterations[scope] = hold_find_end(job, items, count, scope);
        else if (is_counted(operation, scope))
            ret_iterations[scope] = find_iteration(job, items, count, scope);
    }
}

static void hold_note_failure(struct hold *hold, const struct gp_tensor *lacking)
{
    hold->has_failed = true;
    if (lacking)
        err_set(&hold->why, -EOPNOTSUPP,
                "tensor '%.255s' had no round in an iteration in which other tensors had one",
                lacking->name);
    else
        err_set(&hold->why, -EAGAIN,
                "fewer than %d consecutive iterations had a round of each tensor so far", ROW);
}

static void end_iteration(struct gp_job *job, uint32_t scope)
{
    struct hold *hold = &job->hold;
    struct iterations *its = &hold->scopes[scope];
    if (hold_has_steps(job, scope))
        return;
    const struct gp_tensor *lacking = find_lacking(job, scope);
    its->in_a_row = lacking ? 0 : its->in_a_row + (its->in_a_row < ROW);
    if (hold->id && hold->scope == scope && its->now == hold->last && its->in_a_row < ROW)
        hold_note_failure(hold, lacking);
}

/* Restarts the count of consecutive iterations, without the present iteration, because parameters
 * were set or a tensor was declared. */
static void note_change(struct gp_job *job, uint32_t scope)
{
    struct iterations *its = &job->hold.scopes[scope];
    its->in_a_row = its->now > 0 ? -1 : 0;
}

static void note_rounds(struct gp_job *job, const gp_item *items, size_t count, uint32_t scope,
                        uint64_t iteration)
{
    struct iterations *its = &job->hold.scopes[scope];
    if (its->now > 0 && iteration > its->now)
        end_iteration(job, scope);
    its->pushed = iteration > its->now ? 0 : its->pushed;
    its->now = iteration;
    for (size_t i = 0; i < count; i++) {
        uint64_t *last = &items[i].tensor->iterations[scope];
        its->parts += *last == 0;
        its->pushed += *last != iteration;
        *last = iteration;
    }
}

void hold_note_push(struct gp_job *job, const gp_item *items, size_t count, uint8_t operation,
                    const uint64_t *iterations)
{
    bool sets = sets_parameters(operation);
    job->hold.pusher = pthread_self();
    job->hold.stands = false;
    job->hold.is_behind |= iterations[job->hold.scope] > job->hold.last;
    for (uint32_t scope = 0; scope < HOLD_SCOPES; scope++) {
        if (sets && iterations[scope] > 0)
            job->hold.keeps_sets = true;
        else if (sets)
            note_change(job, scope);
        else if (iterations[scope] > 0)
            note_rounds(job, items, count, scope, iterations[scope]);
    }
    hold_check(job);
}

static uint8_t scopes_of(const struct gp_tensor *t)
{
    bool is_ours = strncmp(t->name, NAME_RESERVED, strlen(NAME_RESERVED)) == 0;
    /* a late worker enters the tensors of the step records at the same time as those of the
     * script */
    is_ours = is_ours && strcmp(t->name, STEPS_RECORD_NAME) != 0;
    if (is_ours || !terms_are_for_all(&t->terms) || t->terms.quorum != QUORUM_ALL)
        return 0;
    return (uint8_t)(1 << GRADPOOL__WIRE__HOLD_SCOPE__HOLD_ROUNDS |
                     (t->terms.rule ? 1 << GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES : 0));
}

void hold_note_tensor(gp_tensor *t)
{
    t->scopes = scopes_of(t);
    for (uint32_t scope = 0; scope < HOLD_SCOPES; scope++)
        if (hold_counts(t, scope))
            note_change(t->job, scope);
    hold_check(t->job);
}

void hold_forget_tensor(const gp_tensor *t)
{
    for (uint32_t scope = 0; scope < HOLD_SCOPES; scope++) {
        struct iterations *its = &t->job->hold.scopes[scope];
        its->parts -= t->iterations[scope] > 0;
        its->pushed -= t->iterations[scope] > 0 && t->iterations[scope] == its->now;
    }
}

bool hold_stops(const gp_tensor *t)
{
    const struct hold *hold = &t->job->hold;
    return hold->id && t->next.iterations[hold->scope] > hold->last;
}

/* ---- reports to the coordinator ---- */

static void hold_told(struct control_call *call, const envelope *reply, const struct err *err);

static void hold_tell(struct gp_job *job)
{
    struct hold *hold = &job->hold;
    hold->telling = !hold->telling;
    struct hold_report *report = &hold->reports[hold->telling];
    *report = (struct hold_report){.job = job, .state = hold->state, .why = hold->why};
    bool has_failed = hold->state == GRADPOOL__WIRE__HOLD_STATE__HOLD_FAILED;
    report->body = MESSAGE_PART(HeldRequest, held_request, .hold = hold->id,
                                .state = (Gradpool__Wire__HoldState)hold->state,
                                .code = has_failed ? report->why.code : 0,
                                .text = has_failed ? report->why.text : NULL);
    report->call = (struct control_call){
        .request = ENVELOPE(0, HELD_REQUEST, held_request, &report->body), .done = hold_told};
    hold->is_telling = true;
    control_post(job->control, &report->call);
}

/* Handles the reply to a report. Only one report at a time is without a reply, so a state that has
 * changed since the report is sent now. Thread: the control thread. */
static void hold_told(struct control_call *call, const envelope *reply, const struct err *err)
{
    const struct hold_report *report = container_of(call, struct hold_report, call);
    struct gp_job *job = report->job;
    struct hold *hold = &job->hold;
    pthread_mutex_lock(&job->lock);
    hold->is_telling = false;
    hold->is_taken |= err && err->code == -EBUSY && report->body.hold == hold->id;
    engine_kick(&job->engine);
    if (!err && hold->id && (report->body.hold != hold->id || report->state != hold->state))
        hold_tell(job);
    pthread_mutex_unlock(&job->lock);
}

static bool is_under_way(const struct gp_tensor *t)
{
    bool is_queued = t->is_queued && !hold_stops(t);
    return t->without_result > 0 || t->is_starting || is_queued;
}

/* Fails the hold if this rank waits for other ranks in the middle of the last permitted iteration:
 * the rank then cannot reach the end of this iteration. */
static void look_at_standing(struct gp_job *job)
{
    struct hold *hold = &job->hold;
    const struct gp_tensor *lacking = find_lacking(job, hold->scope);
    if (hold_has_steps(job, hold->scope) || !hold->stands || !lacking ||
        hold->scopes[hold->scope].now != hold->last)
        return;
    hold->has_failed = true;
    err_set(&hold->why, -EAGAIN,
            "rank %u waits for other ranks before tensor '%.255s' had its round of this iteration",
            job->rank, lacking->name);
}

/* Returns whether an iteration has ended. In the scope of rounds the next iteration must also have
 * begun, or this rank must wait for other ranks. Between two iterations a script may still start
 * rounds of all ranks, for example to save, and no late worker may enter before these rounds. */
static bool hold_has_ended(const struct hold *hold)
{
    bool is_next = hold->is_behind || hold->stands;
    return hold->scopes[hold->scope].in_a_row == ROW && (hold->scope != ROUNDS || is_next);
}

/* Returns whether a step has ended: the record of the next step waits, or the thread that makes the
 * steps has pushed more than the record and waits for other ranks. */
static bool hold_step_has_ended(const struct hold *hold)
{
    const struct iterations *its = &hold->scopes[ROUNDS];
    return hold->is_behind || (hold->stands && (its->now == 0 || its->pushed > 1));
}

static int hold_find_state(const struct gp_job *job)
{
    const struct hold *hold = &job->hold;
    const struct iterations *its = &hold->scopes[hold->scope];
    if (hold->saves && hold->scope == ROUNDS)
        return GRADPOOL__WIRE__HOLD_STATE__HOLD_SAVES;
    if (hold->has_failed)
        return GRADPOOL__WIRE__HOLD_STATE__HOLD_FAILED;
    for_each_tensor (t, job) {
        if (hold_counts(t, hold->scope) && is_under_way(t))
            return GRADPOOL__WIRE__HOLD_STATE__HOLD_GOES_ON;
    }
    if (hold_has_steps(job, hold->scope))
        return hold_step_has_ended(hold) ? GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED
                                         : GRADPOOL__WIRE__HOLD_STATE__HOLD_GOES_ON;
    if (its->now == hold->last && (find_lacking(job, hold->scope) || may_lack(job, hold->scope)))
        return GRADPOOL__WIRE__HOLD_STATE__HOLD_GOES_ON;
    return hold_has_ended(hold) ? GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED
                                : GRADPOOL__WIRE__HOLD_STATE__HOLD_RESTS;
}

void hold_check(struct gp_job *job)
{
    struct hold *hold = &job->hold;
    if (!hold->id)
        return;
    look_at_standing(job);
    int state = hold_find_state(job);
    if (state == hold->state)
        return;
    hold->state = state;
    if (!hold->is_telling)
        hold_tell(job);
}

void hold_note_standing(struct gp_job *job, bool stands)
{
    struct hold *hold = &job->hold;
    if (!pthread_equal(hold->pusher, pthread_self()))
        /* another thread pushes the rounds of this rank, so this rank does not stand still */
        return;
    hold->stands = stands;
    hold_check(job);
}

void hold_note_saving(struct gp_job *job, bool saves)
{
    job->hold.saves = saves;
    hold_check(job);
}

bool hold_lets_save(const struct gp_job *job)
{
    const struct hold *hold = &job->hold;
    bool is_told = hold->state == GRADPOOL__WIRE__HOLD_STATE__HOLD_SAVES && !hold->is_telling;
    return !hold->id || hold->scope != ROUNDS || (is_told && !hold->is_taken);
}

/* ---- requests of the coordinator ---- */

/* Permits pushes of parameters that the hold has stopped. */
static void let_sets_begin(struct gp_job *job)
{
    if (job->hold.keeps_sets)
        note_change(job, job->hold.scope);
    job->hold.keeps_sets = false;
}

bool hold_take(struct gp_job *job, const Gradpool__Wire__Hold *wish)
{
    struct hold *hold = &job->hold;
    if (wish->is_over) {
        if (wish->hold != 0 && wish->hold != hold->id)
            return false; /* a newer hold is in force */
        let_sets_begin(job);
        hold->id = 0;
        return true;
    }
    uint32_t scope = wish->scope < HOLD_SCOPES ? wish->scope : 0;
    if (scope != hold->scope || hold->scopes[scope].now != hold->last)
        let_sets_begin(job);
    hold->id = wish->hold;
    hold->scope = scope;
    hold->last = hold->scopes[scope].now;
    hold->state = GRADPOOL__WIRE__HOLD_STATE__HOLD_GOES_ON;
    hold->has_failed = hold->is_taken = false;
    hold->is_behind = hold->keeps_sets;
    return true; /* pushes that an earlier hold has stopped may begin */
}
