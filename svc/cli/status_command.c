/* gradpool status: shows the service, its aggregators and lanes. */
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"

#include <string.h>

/* Returns whether the service is healthy. A list without lanes is no fault for a tenant, because a
 * tenant sees only the lanes of its own jobs. */
static bool is_healthy(const struct view_status *status)
{
    size_t lanes = 0;
    for (size_t i = 0; i < status->aggregators_count; i++) {
        if (strcmp(status->aggregators[i].state, "up") != 0)
            return false;
        lanes += status->aggregators[i].lanes_count;
    }
    return lanes > 0 || status->own_only;
}

static int show_reply(envelope **reply, const void *context)
{
    const struct operator_options *options = context;
    struct snapshot *snapshot;
    if (snapshot_create(*reply, NULL, &snapshot) < 0)
        return CLI_FAILED;
    *reply = NULL;
    int error = (options->json ? ops_status_json : ops_status_table)(&snapshot->status, stdout);
    int code = error < 0 ? CLI_FAILED : is_healthy(&snapshot->status) ? CLI_OK : CLI_NOTHING;
    snapshot_destroy(snapshot);
    return code;
}

int cli_status(int argc, char **argv)
{
    struct operator_options options;
    operator_parse(
        "gradpool status", NULL, "Shows the service, its aggregators and their lanes.",
        "Examples:\n  gradpool status\n  gradpool status --endpoint gradpool://node7:7077 "
        "--json\n\nExit code: 0 all is well; 1 failed; 2 a mistake on the command line; "
        "3 no service there, no lanes, or an aggregator that is not up.",
        argc, argv, &options);
    return operator_show(&options, &MESSAGE(0, STATUS_REQUEST, status_request),
                         GRADPOOL__WIRE__ENVELOPE__BODY_STATUS_REPLY, show_reply, &options);
}
