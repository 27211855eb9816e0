/* gradpool explain: shows why each task of a job is on its lane. */
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"

#include <stdio.h>

static int show_reply(envelope **reply, const void *context)
{
    const struct operator_options *options = context;
    const Gradpool__Wire__ExplainReply *explained = (*reply)->explain_reply;
    if (explained->n_jobs == 0) {
        fprintf(stderr, "gradpool: there is no job %s; see gradpool jobs\n", options->job);
        return CLI_NOTHING;
    }
    for (size_t i = 0; i < explained->n_jobs; i++)
        if (!explained->jobs[i]->job)
            return CLI_FAILED;
    int error = (options->json ? ops_explain_json : ops_explain_text)(explained, stdout);
    return error < 0 ? CLI_FAILED : CLI_OK;
}

int cli_explain(int argc, char **argv)
{
    struct operator_options options;
    operator_parse("gradpool explain", "JOB",
                   "Shows why each task of a job is on its lane, and how much slower sharing "
                   "lanes makes the job: as measured, as predicted, and as allowed.",
                   "Examples:\n  gradpool explain resnet-7\n  gradpool explain resnet-7 --json\n\n"
                   "Exit code: 0 shown; 1 failed; 2 a mistake on the command line; 3 no service "
                   "there, or no such job.",
                   argc, argv, &options);
    if (!options.job)
        return knobs_mistake("gradpool explain", "missing: JOB, the job's name");
    return operator_show(&options,
                         &MESSAGE(0, EXPLAIN_REQUEST, explain_request, .job = (char *)options.job),
                         GRADPOOL__WIRE__ENVELOPE__BODY_EXPLAIN_REPLY, show_reply, &options);
}
