/* Failure of a job on its lane. The failure is stored, sent to the job's workers, and reported to
 * the aggregator process. RULES.md: A12. */
#include "svc/lane/job/failure.h"

#include "svc/base/log.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Stores the first failure, which is the cause; later ones are ignored. Connected workers receive
 * the failure from this lane, other workers from the coordinator (A12). */
void job_fail(struct lane_job *job, int code, const char *format, ...)
{
    if (job->failure)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(job->failure_text, sizeof job->failure_text, format, arguments);
    va_end(arguments);
    job->failure = code;
    for (uint32_t i = 0; i < job->workers_count; i++)
        tell_job_failure(&job->workers[i]);
    if (job->lane->options.job_failed)
        job->lane->options.job_failed(job->lane->options.context);
    job_wake(job); /* transfer_turn() ends the chunks in progress */
}

void job_evict(struct worker *w, const char *why)
{
    log_warn("job '%s' rank %u (%s): the lane closed the connection: %s", w->job->name, w->number,
             w->peer, why);
    job_fail(w->job, -EPROTO, "rank %u of job '%s' (%s) broke the protocol: %s", w->number,
             w->job->name, w->peer, why);
    fabric_disconnect(w->conn);
}
