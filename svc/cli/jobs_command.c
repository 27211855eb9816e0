/* gradpool jobs: the jobs of the service, or one of them with its workers. */
#include "svc/base/cleanup.h"
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"

#include <errno.h>

static int job_view(const Gradpool__Wire__JobView *job, struct view_job *ret_view)
{
    struct view_worker *ranks = calloc(job->n_ranks + 1, sizeof *ranks);
    struct view_limit *limits = calloc(job->n_limits + 1, sizeof *limits);
    if (!ranks || !limits) {
        free(ranks);
        free(limits);
        return -ENOMEM;
    }
    for (size_t i = 0; i < job->n_limits; i++)
        limits[i] = (struct view_limit){.name = job->limits[i]->name,
                                        .used = job->limits[i]->used,
                                        .most = job->limits[i]->most};
    for (size_t i = 0; i < job->n_ranks; i++)
        ranks[i] = (struct view_worker){.rank = job->ranks[i]->rank,
                                        .pid = job->ranks[i]->pid,
                                        .node = job->ranks[i]->node,
                                        .state = job->ranks[i]->state};
    *ret_view = (struct view_job){.tenant = job->tenant,
                                  .job = job->job,
                                  .state = job->state,
                                  .failure = job->failure,
                                  .job_id = job->job_id,
                                  .workers = job->workers,
                                  .tensors = job->tensors,
                                  .tasks = job->tasks,
                                  .epoch = job->epoch,
                                  .tensor_bytes = job->tensor_bytes,
                                  .period_ns = job->period_ns,
                                  .alone_period_ns = job->alone_period_ns,
                                  .lane_ns = job->lane_ns,
                                  .loss_ppm = job->loss_ppm,
                                  .lanes = job->lanes,
                                  .lanes_count = job->n_lanes,
                                  .ranks = ranks,
                                  .ranks_count = job->n_ranks,
                                  .limits = limits,
                                  .limits_count = job->n_limits};
    if (!job->use)
        return 0;
    operator_use(job->use, &ret_view->use);
    ret_view->measured = (struct view_measured){.round = job->use->squares_round,
                                                .inputs = job->use->squares_inputs,
                                                .losses = job->use->losses,
                                                .input_squares = job->use->input_squares,
                                                .result_squares = job->use->result_squares,
                                                .loss_sum = job->use->loss_sum};
    return 0;
}

static int show(const Gradpool__Wire__JobsReply *reply, const struct operator_options *options,
                const struct cli_show *how)
{
    _cleanup_free_ struct view_job *views = calloc(reply->n_jobs + 1, sizeof *views);
    struct view_jobs jobs = {.jobs = views};
    int error = views ? 0 : -ENOMEM;
    while (error == 0 && jobs.jobs_count < reply->n_jobs) {
        error = job_view(reply->jobs[jobs.jobs_count], &views[jobs.jobs_count]);
        jobs.jobs_count += error == 0;
    }
    if (error == 0 && options->json)
        error = how->jobs_json(&jobs, stdout);
    else if (error == 0 && options->job && jobs.jobs_count == 1)
        error = how->job_table(&views[0], stdout);
    else if (error == 0)
        error = how->jobs_table(&jobs, stdout);
    for (size_t i = 0; i < jobs.jobs_count; i++) {
        free(views[i].ranks);
        free(views[i].limits);
    }
    return error;
}

static int show_reply(const envelope *reply, const struct operator_options *options,
                      const struct cli_show *how)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY)
        return CLI_FAILED;
    if (options->job && reply->jobs_reply->n_jobs == 0) {
        fprintf(stderr, "gradpool: there is no job %s\n", options->job);
        return CLI_NOTHING;
    }
    return show(reply->jobs_reply, options, how) < 0 ? CLI_FAILED : CLI_OK;
}

int cli_jobs(int argc, char **argv, const struct cli_show *how)
{
    struct operator_options options;
    operator_parse("gradpool jobs", "[JOB]",
                   "Shows the jobs of the service, or one job with its workers.",
                   "Examples:\n  gradpool jobs\n  gradpool jobs resnet-7 --json\n\n"
                   "Exit code: 0 shown; 1 failed; 2 a mistake on the command line; 3 no service "
                   "there, or no such job.",
                   argc, argv, &options);
    Gradpool__Wire__JobsRequest ask = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    if (options.job)
        ask.job = (char *)options.job;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REQUEST;
    request.jobs_request = &ask;
    int error = operator_ask(&options, &request, &reply);
    if (error < 0)
        return error == -EHOSTDOWN ? CLI_NOTHING : CLI_FAILED;
    int code = show_reply(reply, &options, how);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}
