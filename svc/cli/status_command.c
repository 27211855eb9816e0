/* gradpool status: the service, its aggregators and lanes. */
#include "svc/base/cleanup.h"
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"

#include <errno.h>
#include <string.h>

static void lane_view(const Gradpool__Wire__LaneView *lane, struct view_lane *ret_lane)
{
    *ret_lane = (struct view_lane){.lane = lane->lane,
                                   .core = lane->core,
                                   .pu = lane->pu,
                                   .numa = lane->numa,
                                   .tasks = lane->tasks,
                                   .jobs = lane->jobs,
                                   .shm = lane->shm,
                                   .ofi = lane->ofi,
                                   .memory_bytes_max = lane->memory_bytes_max};
    if (!lane->use)
        return;
    for (size_t i = 0; i < lane->use->n_jobs; i++)
        operator_use(lane->use->jobs[i], &ret_lane->use);
    ret_lane->cpu_ns = lane->use->cpu_ns;
    ret_lane->arena_bytes = lane->use->arena_bytes;
    /* The lane's own sums: jobs that have ended are in them. */
    ret_lane->use.busy_ns = lane->use->busy_ns;
    ret_lane->use.rounds = lane->use->rounds;
    ret_lane->use.pushed_bytes = lane->use->pushed_bytes;
}

static size_t lanes_total(const Gradpool__Wire__StatusReply *reply)
{
    size_t total = 0;
    for (size_t i = 0; i < reply->n_aggregators; i++)
        total += reply->aggregators[i]->n_lanes;
    return total;
}

static void aggregator_view(const Gradpool__Wire__AggregatorView *a, struct view_lane *lanes,
                            struct view_aggregator *ret_view)
{
    *ret_view = (struct view_aggregator){.aggregator = a->aggregator,
                                         .pid = a->pid,
                                         .node = a->node,
                                         .state = a->state,
                                         .cpu_ns = a->cpu_ns,
                                         .silent_ns = a->silent_ns,
                                         .lanes = lanes,
                                         .lanes_count = a->n_lanes};
    for (size_t i = 0; i < a->n_lanes; i++)
        lane_view(a->lanes[i], &lanes[i]);
}

static int show(const Gradpool__Wire__StatusReply *reply,
                int (*print)(const struct view_status *status, FILE *out))
{
    _cleanup_free_ struct view_lane *lanes = calloc(lanes_total(reply) + 1, sizeof *lanes);
    _cleanup_free_ struct view_aggregator *aggregators =
        calloc(reply->n_aggregators + 1, sizeof *aggregators);
    if (!lanes || !aggregators)
        return -ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < reply->n_aggregators; i++) {
        aggregator_view(reply->aggregators[i], lanes + at, &aggregators[i]);
        at += reply->aggregators[i]->n_lanes;
    }
    struct view_status status = {.endpoint = reply->endpoint,
                                 .state_dir = reply->state_dir,
                                 .policy = reply->policy,
                                 .pid = reply->pid,
                                 .jobs = reply->jobs,
                                 .tasks = reply->tasks,
                                 .uptime_ns = reply->uptime_ns,
                                 .cpu_ns = reply->cpu_ns,
                                 .incarnation = reply->incarnation,
                                 .aggregators = aggregators,
                                 .aggregators_count = reply->n_aggregators};
    return print(&status, stdout);
}

static bool is_healthy(const Gradpool__Wire__StatusReply *reply)
{
    for (size_t i = 0; i < reply->n_aggregators; i++)
        if (strcmp(reply->aggregators[i]->state, "up") != 0)
            return false;
    return lanes_total(reply) > 0;
}

int cli_status(int argc, char **argv, const struct cli_show *how)
{
    struct operator_options options;
    operator_parse(
        "gradpool status", NULL, "Shows the service, its aggregators and their lanes.",
        "Examples:\n  gradpool status\n  gradpool status --endpoint gradpool://node7:7077 "
        "--json\n\nExit code: 0 all is well; 1 failed; 2 a mistake on the command line; "
        "3 no service there, no lanes, or an aggregator that is not up.",
        argc, argv, &options);
    Gradpool__Wire__StatusRequest ask = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_STATUS_REQUEST;
    request.status_request = &ask;
    int error = operator_ask(&options, &request, &reply);
    if (error < 0)
        return error == -EHOSTDOWN ? CLI_NOTHING : CLI_FAILED;
    int code = CLI_FAILED;
    if (reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_STATUS_REPLY &&
        show(reply->status_reply, options.json ? how->status_json : how->status_table) == 0)
        code = is_healthy(reply->status_reply) ? CLI_OK : CLI_NOTHING;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}
