/* gradpool jobs: shows the jobs of the service, or one of them with its workers. gradpool table
 * list: shows the tables of keyed rows of jobs. */
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct jobs_options {
    /* first field, because the functions of operator.h cast the context to this type */
    struct operator_options options;
    bool lists_tables;
};

/* Shows one job. A job of a pool that has no worker yet is only in the list of pools. */
static int jobs_show_one(const struct view_jobs *jobs)
{
    int error = jobs->jobs_count ? ops_job_table(&jobs->jobs[0], stdout) : 0;
    return error < 0 || !jobs->pools ? error : ops_pool_jobs_text(jobs->pools, stdout);
}

static int jobs_show(const struct view_jobs *jobs, const struct jobs_options *o)
{
    const char *job = o->options.job;
    bool json = o->options.json, has_pools = jobs->pools && jobs->pools->jobs_count > 0;
    if (job && jobs->jobs_count == 0 && !has_pools) {
        fprintf(stderr, "gradpool: there is no job %s; see gradpool jobs\n", job);
        return CLI_NOTHING;
    }
    int error = 0;
    if (o->lists_tables)
        error = (json ? ops_tables_json : ops_tables_table)(jobs, stdout);
    else if (!json && job && jobs->jobs_count <= 1)
        error = jobs_show_one(jobs);
    else
        error = (json ? ops_jobs_json : ops_jobs_table)(jobs, stdout);
    return error < 0 ? CLI_FAILED : CLI_OK;
}

static int show_reply(envelope **reply, const void *context)
{
    struct snapshot *snapshot;
    if (snapshot_create(NULL, *reply, &snapshot) < 0)
        return CLI_FAILED;
    *reply = NULL;
    int code = jobs_show(&snapshot->jobs, context);
    snapshot_destroy(snapshot);
    return code;
}

static int jobs_ask(const struct jobs_options *o)
{
    return operator_show(&o->options,
                         &MESSAGE(0, JOBS_REQUEST, jobs_request, .job = (char *)o->options.job),
                         GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY, show_reply, o);
}

int cli_jobs(int argc, char **argv)
{
    struct jobs_options o = {0};
    operator_parse("gradpool jobs", "[JOB]",
                   "Shows the jobs of the service, or one job with its workers and tables.",
                   "Examples:\n  gradpool jobs\n  gradpool jobs resnet-7 --json\n\n"
                   "Exit code: 0 shown; 1 failed; 2 a mistake on the command line; 3 no service "
                   "there, or no such job.",
                   argc, argv, &o.options);
    return jobs_ask(&o);
}

int cli_tables_list(const struct operator_options *options)
{
    const struct jobs_options o = {.options = *options, .lists_tables = true};
    return jobs_ask(&o);
}
