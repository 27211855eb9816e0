/* gradpool aggregator: its options. */
#include "svc/cli/cli.h"
#include "svc/cli/options/lane_options.h"
#include "svc/cli/options/options.h"

#include <stdlib.h>

enum { JOIN = LANE_OPTIONS, SERVICE, PROVIDER, GRANT, KERNELS, LANE_POLICY };

const struct knob aggregator_knobs[] = {
    LANE_KNOBS,
    [JOIN] =
        {"join", "HOST:PORT",
         "the coordinator: host:port or gradpool://host:port, with the key of an operator, or on "
         "its host the path of its control socket, STATE_DIR/control.sock (required)"},
    [SERVICE] = {"service", "NAME",
                 "join only a service that was started with this --name (default: one without)"},
    [PROVIDER] = {"provider", "NAME", "libfabric provider (default: tcp)"},
    [GRANT] = {"grant", "SECRET",
               "from the coordinator that started it; better given in the "
               "environment, which other users cannot read"},
    [KERNELS] = {"kernels", "SET",
                 "instruction set of the sums: best, c, avx2 or avx512; the bits are the same "
                 "(default: best)"},
    [LANE_POLICY] = {"lane-policy", "NAME",
                     "which job gets a lane's next chunk: fair (one after the other), shortest "
                     "(who has least to do, with ageing) or fifo (default: fair)"},
    {0},
};

static int set(void *context, int index, const char *value, struct err *err)
{
    struct cli_aggregator *o = context;
    if (index < LANE_OPTIONS)
        return lane_option_set(&o->lanes, index, value, err);
    switch (index) {
    case JOIN: o->join = value; break;
    case SERVICE: o->service = value; break;
    case PROVIDER: o->provider = value; break;
    case GRANT: o->grant = value; break;
    case KERNELS: o->kernels = value; break;
    case LANE_POLICY: o->lane_policy = value; break;
    }
    return 0;
}

void cli_aggregator_parse(int argc, char **argv, struct cli_aggregator *ret_options)
{
    static const struct knob_command command = {
        .name = "gradpool aggregator",
        .knobs = aggregator_knobs,
        .reads_variables = true,
        .set = set,
        .before =
            "Adds this host's cores to a gradpool service: one lane for each core, which sums "
            "the gradients of the jobs that the coordinator places on it.",
        .after = "Examples:\n"
                 "  gradpool aggregator --join node7:7077\n"
                 "  gradpool aggregator --join 10.0.0.7:7077 --cores 0-15 --interface eth1\n\n"
                 "An option can be given as the environment variable in brackets; the command "
                 "line wins.\n\n"
                 "After SIGTERM, SIGHUP or Ctrl-C what the aggregator has moves to others while "
                 "jobs train, then it ends; a second SIGTERM or Ctrl-C ends it at once. Exit code: "
                 "0 ended so, 1 could not start or was refused, 2 for a mistake on the command "
                 "line."};
    struct cli_aggregator o = {.lanes = {.lanes_per_core = 1, .leave_timeout_s = LEAVE_TIMEOUT_S}};
    knobs_parse(&command, argc, argv, &o);
    if (!o.join)
        exit(knobs_mistake("gradpool aggregator",
                           "--join is required: the coordinator's host:port"));
    *ret_options = o;
}
