/* Sends the requests of a rank at a border between two stages, and waits for the rank's own pulls
 * and pushes. At the deadline the coordinator answers with the late ranks. */
#include "client/lib/border/internal.h"
#include "client/lib/job/row_call.h"
#include "client/lib/job/tensor.h"
#include "client/lib/link/link.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS (10 * NS_PER_S) /* time for the coordinator's answer after the deadline */

struct border_call {
    struct control_call call;
    struct gp_job *job;
    struct stage_answer *answer;
    Gradpool__Wire__StageRequest request;
    Gradpool__Wire__StageSpec spec;
    /* the tensors that follow the stages; for each of them the newest committed round, and the
     * number of updates up to this round plus 1 (0: unknown) */
    uint32_t *tensors;
    uint64_t *rounds, *steps;
    struct err err;
};

/* ---- the rank's own rounds ---- */

/* Finds a tensor whose rounds on this rank are not all committed; NULL: there is none. */
static struct gp_tensor *border_find_busy(const struct gp_job *job)
{
    for_each_tensor (t, job) {
        bool is_open = t->without_commit > 0 || t->has_kept || t->is_queued || t->is_starting;
        if (is_open && !t->failure.code && tensor_suits_stages(t))
            return t;
    }
    return NULL;
}

static bool border_has_committed(void *context)
{
    const struct gp_job *job = context;
    return job->failure.code || !border_find_busy(job);
}

int border_await_rounds(const struct stage_call *call)
{
    struct gp_job *job = call->job;
    pthread_mutex_lock(&job->lock);
    engine_run(&job->engine, call->deadline_ns, border_has_committed, job);
    const struct gp_tensor *busy = border_find_busy(job);
    int error = 0;
    if (job->failure.code)
        error = client_error_from(&job->failure);
    else if (busy)
        error = client_error(-ETIMEDOUT,
                             "tensor '%s': round %" PRIu64 " of rank %u has not ended within "
                             "%" PRIu64 " ms; push the tensor on all members of the stage, or "
                             "raise timeout_ms",
                             busy->name, busy->round, job->rank, call->timeout_ns / NS_PER_MS);
    pthread_mutex_unlock(&job->lock);
    return error;
}

/* ---- the request ---- */

static int border_read(struct border_call *b, const envelope *reply)
{
    const Gradpool__Wire__StageReply *r = reply->stage_reply;
    bool is_reply = reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_STAGE_REPLY;
    if (!is_reply || r->ranks.len != sizeof b->answer->ranks || r->first_clock < 1 ||
        r->first_clock >= RECORD_CLOCK_MOST)
        return err_set(&b->err, -EPROTO,
                       "job '%s': the coordinator did not answer with a stage; install one version "
                       "of gradpool on all hosts",
                       b->job->name);
    *b->answer = (struct stage_answer){.number = r->number,
                                       .first_clock = r->first_clock,
                                       .cursor = r->cursor,
                                       .trial_steps = r->trial_steps,
                                       .continues = r->continues};
    memcpy(b->answer->ranks, r->ranks.data, sizeof b->answer->ranks);
    return 0;
}

/* If the job has failed, its failure replaces the error of the call, because the failure is the
 * cause of this error. */
static void border_answered(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct border_call *b = container_of(call, struct border_call, call);
    pthread_mutex_lock(&b->job->lock);
    if (err)
        b->err = b->job->failure.code ? b->job->failure : *err;
    else
        (void)border_read(b, reply);
    pthread_mutex_unlock(&b->job->lock);
}

static void border_fill_spec(struct border_call *b, const gp_stage_spec *spec)
{
    b->spec =
        MESSAGE_PART(StageSpec, stage_spec, .name = (char *)spec->name, .workers = spec->workers,
                     .workers_min = spec->workers_min, .workers_max = spec->workers_max,
                     .goal = (uint32_t)spec->goal, .visit = (uint32_t)spec->visit,
                     .consistency = (uint32_t)spec->consistency, .staleness = spec->staleness,
                     .carry_bytes = carry_bytes(spec));
    b->request.spec = &b->spec;
}

/* Lists the committed rounds, from which members that enter continue. A tensor that has failed is
 * left out. Returns 0, -ENOMEM or -EBUSY. */
static int border_list_rounds(struct border_call *b)
{
    const struct gp_job *job = b->job;
    const struct gp_tensor *busy = border_find_busy(job);
    if (busy)
        return client_error(-EBUSY,
                            "tensor '%s': another thread has begun a round during gp_stage_next(); "
                            "push after the call",
                            busy->name);
    b->tensors = calloc(job->by_name.count + 1, sizeof *b->tensors);
    b->rounds = calloc(job->by_name.count + 1, sizeof *b->rounds);
    b->steps = calloc(job->by_name.count + 1, sizeof *b->steps);
    if (!b->tensors || !b->rounds || !b->steps)
        return client_error(-ENOMEM, "job '%s': this process has no memory for a stage", job->name);
    size_t count = 0;
    for_each_tensor (t, job) {
        if (t->round == 0 || t->failure.code || !tensor_suits_stages(t))
            continue;
        b->tensors[count] = t->id;
        b->steps[count] = t->knows_steps ? t->steps[t->round % 3] + 1 : 0;
        b->rounds[count++] = t->round;
    }
    b->request.tensors = b->tensors;
    b->request.rounds = b->rounds;
    b->request.steps = b->steps;
    b->request.n_tensors = b->request.n_rounds = b->request.n_steps = count;
    return 0;
}

static void border_fill(struct border_call *b, const struct stage_call *call, bool ends,
                        const struct stage_line *line)
{
    struct job_stage *stage = call->stage;
    b->request =
        MESSAGE_PART(StageRequest, stage_request, .number = stage->now.number, .ends = ends,
                     .timeout_ms = (uint32_t)(call->timeout_ns / NS_PER_MS),
                     .ended_clock = call->job->tables->clock.ended, .visits = stage->visits,
                     .is_done = !stage->is_paused, .cursor = stage->now.cursor,
                     .unit_ps = stage->unit_ps, .n_unit_ps = stage->times_count);
    if (!ends && call->spec)
        border_fill_spec(b, call->spec);
    if (line && line->is_there) {
        b->request.ranks = (ProtobufCBinaryData){sizeof line->ranks, (uint8_t *)line->ranks};
        b->request.trial_steps = line->trial_steps;
    }
    b->call.request = ENVELOPE(0, STAGE_REQUEST, stage_request, &b->request);
    b->call.done = border_answered;
}

int border_ask(const struct stage_call *call, bool ends, const struct stage_line *line,
               struct stage_answer *ret_answer)
{
    struct gp_job *job = call->job;
    struct border_call b = {.job = job, .answer = ret_answer};
    pthread_mutex_lock(&job->lock);
    border_fill(&b, call, ends, line);
    int error = ends ? 0 : border_list_rounds(&b);
    pthread_mutex_unlock(&job->lock);
    bool is_late = false;
    if (error == 0) {
        control_post(job->control, &b.call);
        is_late = control_wait(job->control, &b.call, call->deadline_ns + ANSWER_NS) < 0;
    }
    free(b.tensors);
    free(b.rounds);
    free(b.steps);
    if (error < 0)
        return error;
    if (is_late)
        return client_error(-ETIMEDOUT,
                            "job '%s': the coordinator at %s has not answered %s after %" PRIu64
                            " ms; look at gradpool serve there, or raise timeout_ms",
                            job->name, job->client->endpoint_text,
                            ends ? "gp_stage_end()" : "gp_stage_next()",
                            (call->timeout_ns + ANSWER_NS) / NS_PER_MS);
    return b.err.code ? client_error_from(&b.err) : 0;
}

/* ---- the rank's own requests ---- */

static bool border_has_sent_all(const struct gp_job *job)
{
    list_for_each_entry (const struct table_lane, lane, &job->tables->lanes, node)
        if (!lane->is_lost && (lane->must_stand || lane->clock < job->tables->clock.ended))
            return false;
    return true;
}

static bool border_is_drained(void *context)
{
    const struct gp_job *job = context;
    if (job->failure.code)
        return true;
    list_for_each_entry (const struct row_call, call, &job->tables->calls, node)
        if (call->open > 0)
            return false;
    return border_has_sent_all(job);
}

/* Ends all clocks of this member before the next stage. An idle rank skips these clocks, because
 * lanes do not count the clocks of idle ranks. Called with the job's lock held. */
static int border_reach(const struct stage_call *call, uint64_t first_clock)
{
    struct gp_job *job = call->job;
    struct job_tables *tables = job->tables;
    if (tables->clock.ended + 1 < first_clock)
        tables->clock.ended = first_clock - 1;
    if (ranks_have(call->stage->members, job->rank)) {
        link_announce_rows(job);
        engine_run(&job->engine, call->deadline_ns, border_is_drained, job);
        if (job->failure.code)
            return client_error_from(&job->failure);
        return border_is_drained(job)
                   ? 0
                   : client_error(-ETIMEDOUT,
                                  "job '%s': requests of rank %u to its tables have not ended "
                                  "within %" PRIu64 " ms; look at the lanes of the tables, or "
                                  "raise timeout_ms",
                                  job->name, job->rank, call->timeout_ns / NS_PER_MS);
    }
    list_for_each_entry (struct table_lane, lane, &tables->lanes, node)
        lane->clock = tables->clock.ended;
    return 0;
}

/* Returns whether a push waits for the end of the open clock. */
static bool border_has_open_push(const struct job_tables *tables)
{
    list_for_each_entry (const struct row_call, call, &tables->calls, node)
        if (call->open > 0 && call->is_push && call->clock > tables->clock.ended &&
            call->batch->table->consistency == TABLE_TERMS_BSP)
            return true;
    return false;
}

static int border_end_clock(struct gp_job *job)
{
    struct job_tables *tables = job->tables;
    if (!border_has_open_push(tables))
        return 0;
    int error = worker_clock_end(&tables->clock);
    return error < 0 ? client_error(error,
                                    "job '%s': this rank has used all numbers of clocks; start the "
                                    "job again",
                                    job->name)
                     : 0;
}

int border_end(const struct stage_call *call)
{
    struct gp_job *job = call->job;
    struct stage_answer answer = {0};
    int error = border_await_rounds(call);
    pthread_mutex_lock(&job->lock);
    if (error == 0)
        error = job->failure.code ? client_error_from(&job->failure) : border_end_clock(job);
    pthread_mutex_unlock(&job->lock);
    if (error == 0)
        error = border_ask(call, true, NULL, &answer);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    error = border_reach(call, answer.first_clock);
    call->stage->has_ended = error == 0;
    engine_flush(&job->engine);
    pthread_mutex_unlock(&job->lock);
    return error < 0 ? error : answer.continues;
}
