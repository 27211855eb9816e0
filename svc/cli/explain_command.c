/* gradpool explain: why each task of a job is where it is. */
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"

#include <errno.h>
#include <stdio.h>

static int show_reply(const envelope *reply, const struct operator_options *options)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_EXPLAIN_REPLY)
        return CLI_FAILED;
    if (reply->explain_reply->n_jobs == 0) {
        fprintf(stderr, "gradpool: there is no job %s\n", options->job);
        return CLI_NOTHING;
    }
    for (size_t i = 0; i < reply->explain_reply->n_jobs; i++)
        if (!reply->explain_reply->jobs[i]->job)
            return CLI_FAILED;
    int error = options->json ? ops_explain_json(reply->explain_reply, stdout)
                              : ops_explain_text(reply->explain_reply, stdout);
    return error < 0 ? CLI_FAILED : CLI_OK;
}

int cli_explain(int argc, char **argv)
{
    struct operator_options options;
    operator_parse("gradpool explain", "JOB",
                   "Says why each task of a job is on its lane, and what the job loses by sharing "
                   "lanes: as measured, as predicted, and as allowed.",
                   "Examples:\n  gradpool explain resnet-7\n  gradpool explain resnet-7 --json\n\n"
                   "Exit code: 0 shown; 1 failed; 2 a mistake on the command line; 3 no service "
                   "there, or no such job.",
                   argc, argv, &options);
    if (!options.job) {
        fprintf(stderr, "gradpool explain: missing: JOB, the job's name\n"
                        "Try `gradpool explain --help' for more information.\n");
        return CLI_USAGE;
    }
    Gradpool__Wire__ExplainRequest ask = GRADPOOL__WIRE__EXPLAIN_REQUEST__INIT;
    ask.job = (char *)options.job;
    envelope request = ENVELOPE(0, EXPLAIN_REQUEST, explain_request, &ask), *reply;
    int error = operator_ask(&options, &request, &reply);
    if (error < 0)
        return error == -EHOSTDOWN ? CLI_NOTHING : CLI_FAILED;
    int code = show_reply(reply, &options);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}
