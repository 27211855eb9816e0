/* The calls on stages: gp_stage_next(), gp_stage_step(), gp_stage_end(). One thread at a time is in
 * such a call. */
#include "client/lib/border/internal.h"
#include "client/lib/round/wait.h"
#include "client/lib/rows/changes.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the state ---- */

static int stage_create(struct gp_job *job)
{
    if (job_tables_create(job) < 0 || !(job->tables->stage = carry_create_stage()))
        return client_error(-ENOMEM, "job '%s': this process has no memory for a stage", job->name);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        ranks_add(job->tables->stage->members, rank);
    return 0;
}

/* Begins a call. After success stage_finish() ends the call. */
static int stage_start(struct stage_call *call, int timeout_ms)
{
    struct gp_job *job = call->job;
    call->timeout_ns = wait_timeout_ns(job->client, timeout_ms);
    call->deadline_ns = clock_now_ns() + call->timeout_ns;
    pthread_mutex_lock(&job->lock);
    int error = job->failure.code ? client_error_from(&job->failure) : 0;
    if (error == 0 && !job_stage_of(job))
        error = stage_create(job);
    if (error == 0 && job_stage_of(job)->is_busy)
        error = client_error(-EBUSY,
                             "job '%s': another thread is in a call on stages; call them from one "
                             "thread",
                             job->name);
    if (error == 0) {
        call->stage = job_stage_of(job);
        call->stage->is_busy = true;
        job->users++;
    }
    pthread_mutex_unlock(&job->lock);
    return error;
}

static int stage_finish(const struct stage_call *call, int result)
{
    pthread_mutex_lock(&call->job->lock);
    call->stage->is_busy = false;
    job_end_use(call->job);
    return result;
}

/* ---- the next stage ---- */

static int next_check(const struct stage_call *call)
{
    const gp_stage_spec *spec = call->spec;
    const struct job_stage *stage = call->stage;
    if (spec && (!spec->name || !*spec->name || strlen(spec->name) > GP_STAGE_NAME_BYTES_MAX))
        return client_error(-EINVAL, "gp_stage_next: a stage needs a name of 1 to %d bytes",
                            GP_STAGE_NAME_BYTES_MAX);
    for (size_t i = 0; spec && i < spec->carry_count; i++)
        if (!spec->carry || (spec->carry[i].bytes > 0 && !spec->carry[i].values))
            return client_error(-EINVAL,
                                "gp_stage_next: item %zu of carry is NULL; pass its memory", i);
    if (*stage->name && !stage->has_ended)
        return client_error(-EINVAL,
                            "gp_stage_next: rank %u has not ended stage '%s'; call gp_stage_end()",
                            call->job->rank, stage->name);
    return carry_check(call);
}

static void next_set_consistency(struct gp_job *job, const gp_stage_spec *spec)
{
    for_each_table (t, job) {
        if (t->terms->consistency != TABLE_TERMS_INHERIT)
            continue;
        t->consistency = spec && spec->consistency ? spec->consistency : TABLE_TERMS_BSP;
        t->staleness = spec ? spec->staleness : 0;
    }
}

/* Sends the settings of this rank's tables again. Every member does so, because lanes use the
 * settings of the lowest member, and the next stage may have another lowest member. */
static int next_repeat_settings(struct gp_job *job)
{
    int error = 0;
    for_each_table (t, job)
        if (error == 0 && t->has_settings)
            error = changes_add(t, t->settings);
    return error;
}

static int next_enter(const struct stage_call *call, const struct stage_answer *answer)
{
    struct job_stage *stage = call->stage;
    uint32_t rank = call->job->rank;
    bool is_member = ranks_have(answer->ranks, rank);
    snprintf(stage->name, sizeof stage->name, "%s", call->spec ? call->spec->name : "");
    memcpy(stage->members, answer->ranks, sizeof stage->members);
    stage->now = (gp_stage){.number = answer->number,
                            .cursor = answer->cursor,
                            .workers = ranks_count(answer->ranks),
                            .place = is_member ? ranks_below(answer->ranks, rank) : GP_IDLE,
                            .is_trial = answer->trial_steps > 0};
    stage->first_clock = answer->first_clock;
    stage->trial_steps = answer->trial_steps;
    stage->visits += is_member && call->spec;
    stage->steps = 0;
    stage->times_count = 0;
    stage->has_ended = stage->has_asked = stage->is_paused = false;
    stage->began_ns = clock_now_ns();
    next_set_consistency(call->job, call->spec);
    int error = is_member ? next_repeat_settings(call->job) : 0;
    return error < 0 ? error : script_note(call->job, stage);
}

/* Requests the next stage. After a time-out the coordinator may have counted the request, and may
 * begin the stage from the committed rounds that the request contains. This rank therefore may not
 * push until a later call has succeeded. */
static int next_ask(const struct stage_call *call, const struct stage_line *line,
                    struct stage_answer *ret_answer)
{
    int error = border_ask(call, false, line, ret_answer);
    pthread_mutex_lock(&call->job->lock);
    call->stage->has_asked |= error == 0 || error == -ETIMEDOUT;
    pthread_mutex_unlock(&call->job->lock);
    return error;
}

/* Before the first stage and after the last stage all ranks work without a stage. The call ends
 * such a phase in the same way as gp_stage_end() ends a stage. */
static int next_agree(const struct stage_call *call, struct stage_answer *ret_answer)
{
    struct stage_line line;
    int error = call->stage->has_ended ? border_await_rounds(call) : border_end(call);
    if (error == 0)
        error = script_next(call, &line);
    return error == 0 ? next_ask(call, &line, ret_answer) : error;
}

static int next_run(const struct stage_call *call)
{
    struct stage_answer answer = {0};
    int error = next_check(call);
    if (error == 0 && !carry_is_open(call))
        error = next_agree(call, &answer);
    if (error == 0)
        error = carry_hand_over(call, &answer);
    if (error < 0)
        return error;
    pthread_mutex_lock(&call->job->lock);
    error = next_enter(call, &answer);
    pthread_mutex_unlock(&call->job->lock);
    return error;
}

int gp_stage_next(gp_job *job, const gp_stage_spec *spec, int timeout_ms, gp_stage *ret_stage)
{
    int error = job_check(job);
    struct stage_call call = {.job = job, .spec = spec};
    if (error < 0)
        return error;
    if (!ret_stage)
        return client_error(-EINVAL, "gp_stage_next: ret_stage is NULL; pass a gp_stage");
    error = stage_start(&call, timeout_ms);
    if (error < 0)
        return error;
    error = next_run(&call);
    if (error == 0)
        *ret_stage = call.stage->now;
    return stage_finish(&call, error);
}

/* ---- steps ---- */

static int step_note(struct gp_job *job, uint64_t units)
{
    struct job_stage *stage = job_stage_of(job);
    if (!stage || !*stage->name)
        return client_error(-EPERM,
                            "gp_stage_step: no stage of job '%s' is open; call "
                            "gp_stage_next() first",
                            job->name);
    int error = job_stage_check(job, "gp_stage_step");
    if (error < 0)
        return error;
    uint64_t now_ns = clock_now_ns();
    if (units > 0 && stage->times_count < STAGE_TIMES_MAX)
        stage->unit_ps[stage->times_count++] = (now_ns - stage->began_ns) * 1000 / units;
    stage->began_ns = now_ns;
    stage->now.cursor += units;
    stage->steps++;
    stage->is_paused |= stage->trial_steps > 0 && stage->steps >= stage->trial_steps;
    return stage->is_paused;
}

int gp_stage_step(gp_job *job, uint64_t units)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    int result = step_note(job, units);
    pthread_mutex_unlock(&job->lock);
    return result;
}

/* ---- the end of a stage ---- */

int gp_stage_end(gp_job *job, int timeout_ms)
{
    int error = job_check(job);
    struct stage_call call = {.job = job};
    if (error == 0)
        error = stage_start(&call, timeout_ms);
    if (error < 0)
        return error;
    if (!*call.stage->name || call.stage->has_ended)
        error = client_error(-EINVAL,
                             "gp_stage_end: no stage of job '%s' is open; call gp_stage_next() "
                             "first",
                             job->name);
    return stage_finish(&call, error < 0 ? error : border_end(&call));
}
