/* Checks, failure and users of a job: the base of every call on a job. */
#include "client/lib/job/job.h"

#include "client/lib/job/request.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int job_check(const struct gp_job *job)
{
    if (!job)
        return client_error(-EINVAL, "the job is NULL; pass the job of gp_job_join()");
    if (generation_is_foreign(job->client->generation))
        return client_error(-ECHILD,
                            "job '%s' belongs to the parent process; join it anew after "
                            "fork(), or use the spawn start method",
                            job->name);
    return 0;
}

void job_break(struct gp_job *job, int code, const char *format, ...)
{
    if (job->failure.code)
        return;
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    err_set(&job->failure, code < 0 ? code : -EPROTO, "%s", text[0] ? text : err_text(code));
    list_for_each_entry (struct gp_request, q, &job->requests, node)
        request_fail(q, job->failure.code, job->failure.text);
    engine_kick(&job->engine);
}

void job_end_use(struct gp_job *job)
{
    job->users--;
    if (job->is_leaving)
        engine_kick(&job->engine);
    pthread_mutex_unlock(&job->lock);
}
