/* gradpool jobs: shows the jobs of the service, or one of them with its workers. */
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"

static int show(const struct view_jobs *jobs, const struct operator_options *options)
{
    if (options->job && jobs->jobs_count == 0) {
        fprintf(stderr, "gradpool: there is no job %s; see gradpool jobs\n", options->job);
        return CLI_NOTHING;
    }
    int error;
    if (options->json)
        error = ops_jobs_json(jobs, stdout);
    else if (options->job && jobs->jobs_count == 1)
        error = ops_job_table(&jobs->jobs[0], stdout);
    else
        error = ops_jobs_table(jobs, stdout);
    return error < 0 ? CLI_FAILED : CLI_OK;
}

static int show_reply(envelope **reply, const void *context)
{
    struct snapshot *snapshot;
    if (snapshot_create(NULL, *reply, &snapshot) < 0)
        return CLI_FAILED;
    *reply = NULL;
    int code = show(&snapshot->jobs, context);
    snapshot_destroy(snapshot);
    return code;
}

int cli_jobs(int argc, char **argv)
{
    struct operator_options options;
    operator_parse("gradpool jobs", "[JOB]",
                   "Shows the jobs of the service, or one job with its workers.",
                   "Examples:\n  gradpool jobs\n  gradpool jobs resnet-7 --json\n\n"
                   "Exit code: 0 shown; 1 failed; 2 a mistake on the command line; 3 no service "
                   "there, or no such job.",
                   argc, argv, &options);
    return operator_show(&options,
                         &MESSAGE(0, JOBS_REQUEST, jobs_request, .job = (char *)options.job),
                         GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY, show_reply, &options);
}
