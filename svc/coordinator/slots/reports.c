/* Reports of pools about the processes of workers: started, ended, withheld, impossible to start.
 * Decides whether the end of a process is a planned leave, the end of the training, or a
 * failure. */
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest description of the end of a process. The reason of a failure, SLOTS_TEXT_BYTES, has room
 * for the description and for the advice. */
#define SLOTS_END_BYTES 180

/* --- started --- */

void slots_worker_found(struct slots_job *job, uint32_t rank)
{
    struct slots_worker *worker = &job->workers[rank];
    free(worker->waits);
    worker->waits = NULL;
    if (worker->state != SLOTS_ORDERED)
        return;
    worker->state = SLOTS_STARTED;
    worker->is_found = slots_worker_keep(job, rank) < 0;
    if (worker->is_found) {
        worker->state = SLOTS_ORDERED; /* slots_find_again() tries again */
        return;
    }
    slots_decide(job->pool->site, (struct scheduler_event){
                                      .kind = SCHEDULER_WORKER_IN, .job = job->id, .rank = rank});
}

void slots_find_again(struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].is_found)
            slots_worker_found(job, rank);
}

static void slots_withheld(struct slots_job *job, uint32_t rank, const char *text)
{
    struct slots_worker *worker = &job->workers[rank];
    char *waits = text_is_plain(text) && strlen(text) < SLOTS_TEXT_BYTES ? strdup(text) : NULL;
    free(worker->waits);
    worker->waits = waits;
}

/* --- ended --- */

/* Reason for which a process has ended. */
enum slots_end {
    SLOTS_END_LEFT,    /* the rank was ordered to leave, or its join was refused as stale */
    SLOTS_END_TRAINED, /* the rank has ended its training */
    SLOTS_END_FAILED,
};

/* Returns whether the rank has sent a Goodbye, for a process whose exit code the pool cannot read.
 * After the end of a complete training no worker can fail. */
static bool slots_has_left(const struct slots_job *job, uint32_t rank)
{
    const struct job *of = slots_training(job);
    const struct session *session = of && rank < of->workers ? of->sessions[rank] : NULL;
    if (of)
        return session && session->state == SESSION_LEFT && !session->has_failed;
    return job->workers[rank].has_left || job->is_complete;
}

/* Returns whether the script itself has resized the job to a size without the rank. */
static bool slots_is_excluded(const struct slots_job *job, uint32_t rank)
{
    const struct job *of = slots_training(job);
    return of && of->terms->is_elastic && rank >= of->ranks->wanted;
}

static enum slots_end slots_end_of(const struct slots_job *job, uint32_t rank,
                                   const WIRE(PoolReport) * report)
{
    bool is_success = report->exit_code == 0 && report->signal == 0;
    if (job->workers[rank].is_leaving || job->is_ending)
        return SLOTS_END_LEFT;
    if (report->event == GRADPOOL__WIRE__POOL_EVENT__POOL_FAILED)
        return SLOTS_END_FAILED;
    if (report->is_adopted)
        is_success = slots_has_left(job, rank);
    else if (report->exit_code == SLOTS_EXIT_STALE)
        return SLOTS_END_LEFT;
    if (!is_success)
        return SLOTS_END_FAILED;
    return slots_is_excluded(job, rank) ? SLOTS_END_LEFT : SLOTS_END_TRAINED;
}

static void slots_describe_end(uint32_t rank, const WIRE(PoolReport) * report,
                               char ret_text[SLOTS_END_BYTES])
{
    bool is_plain = text_is_plain(report->text);
    *ret_text = '\0';
    if (report->event == GRADPOOL__WIRE__POOL_EVENT__POOL_FAILED)
        text_append(ret_text, SLOTS_END_BYTES, "rank %u could not be started: %s", rank,
                    is_plain ? report->text : "?");
    else if (report->is_adopted)
        text_append(ret_text, SLOTS_END_BYTES, "rank %u ended with an error, or without a goodbye",
                    rank);
    else if (report->signal)
        text_append(ret_text, SLOTS_END_BYTES, "rank %u was ended by signal %u", rank,
                    report->signal);
    else
        text_append(ret_text, SLOTS_END_BYTES, "rank %u ended with exit code %u", rank,
                    report->exit_code);
}

/* Handles a failed worker. If the script does not continue after losses, the job fails at once.
 * Otherwise the rank gets another process, until three workers have failed without a step in
 * between. */
static void slots_fail(struct slots_job *job, uint32_t rank, const WIRE(PoolReport) * report)
{
    const struct job *of = slots_training(job);
    char how[SLOTS_END_BYTES], text[SLOTS_TEXT_BYTES];
    bool continues = !of || (of->terms->continues && !of->failure);
    slots_describe_end(rank, report, how);
    log_warn("job %s: %s; see the log of that rank at its pool", job->name, how);
    if (++job->failures < SLOTS_FAILURES_MAX && continues && !job->is_complete)
        return;
    snprintf(text, sizeof text, "%s%s; see the log of that rank", how,
             continues && !job->is_complete ? ", the third failure without a step" : "");
    slots_job_end(job, -ECONNRESET, text);
}

static void slots_trained(struct slots_job *job, uint32_t rank)
{
    if (job->is_complete)
        return;
    log_info("job %s: rank %u has ended its training; no other worker is started", job->name, rank);
    job->is_complete = true;
    slots_job_hold(job);
}

static void slots_ended(struct slots_job *job, uint32_t rank, const WIRE(PoolReport) * report)
{
    enum slots_end how = slots_end_of(job, rank, report);
    if (how == SLOTS_END_FAILED)
        slots_fail(job, rank, report);
    if (how == SLOTS_END_TRAINED)
        slots_trained(job, rank);
    slots_worker_out(job, rank);
}

void slots_worker_gone(struct slots_job *job, uint32_t rank)
{
    bool was_ordered = job->workers[rank].is_leaving || job->is_ending;
    if (!was_ordered && slots_has_left(job, rank) && !slots_is_excluded(job, rank))
        slots_trained(job, rank);
    slots_worker_out(job, rank);
}

/* --- messages --- */

/* A report about another incarnation than the rank's has no effect. A process of such an
 * incarnation has no slot: its pool had read the order before it joined again, and obeyed it
 * afterwards. */
static void slots_report_stale(struct slots_job *job, const WIRE(PoolReport) * report)
{
    if (report->event == GRADPOOL__WIRE__POOL_EVENT__POOL_STARTED)
        slots_send_end(job, report->worker->rank, report->worker->incarnation);
}

static void slots_report(struct slots_pool *pool, const WIRE(PoolReport) * report)
{
    const WIRE(PoolWorker) *of = report->worker;
    struct slots_job *job = of ? slots_find_job(pool->service, pool->tenant, of->job) : NULL;
    if (!job || job->pool != pool || of->rank >= job->workers_max || of->incarnation == 0)
        return;
    if (job->workers[of->rank].incarnation != of->incarnation)
        return slots_report_stale(job, report);
    switch (report->event) {
    case GRADPOOL__WIRE__POOL_EVENT__POOL_STARTED: return slots_worker_found(job, of->rank);
    case GRADPOOL__WIRE__POOL_EVENT__POOL_WITHHELD:
        return slots_withheld(job, of->rank, report->text);
    case GRADPOOL__WIRE__POOL_EVENT__POOL_ENDED:
    case GRADPOOL__WIRE__POOL_EVENT__POOL_FAILED: return slots_ended(job, of->rank, report);
    default: return;
    }
}

void slots_handle_reports(struct peer *p, const envelope *message)
{
    const WIRE(PoolReports) *reports = message->pool_reports;
    struct slots_pool *pool = slots_pool_of(p);
    if (!pool)
        return peer_fail(p, message->id, -ENOTCONN, "this connection has no pool; join as one");
    if (reports->n_reports > SLOTS_LISTED_MAX)
        return peer_fail(p, message->id, -EINVAL, "%zu reports in a message; expected at most %d",
                         reports->n_reports, SLOTS_LISTED_MAX);
    for (size_t i = 0; i < reports->n_reports; i++)
        slots_report(pool, reports->reports[i]);
    peer_reply_done(p, message->id);
    slots_carry_out(pool->site);
}
