/* Options of `gradpool aggregator`. */
#include "svc/cli/cli.h"
#include "svc/cli/options/config.h"
#include "svc/cli/options/knobs.h"
#include "svc/cli/options/lane_options.h"
#include "svc/cli/options/options.h"

#include <errno.h>

enum { ALL };

/* clang-format off */
#define OF(field) KNOB_FIELD(struct cli_aggregator, field)

const struct knob aggregator_knobs[] = {
    {"join", "HOST:PORT", "`host:port` with an operator's key, or the path of the control socket",
     .shown = "required", .read = knob_read_text, OF(join)},
    {"service", "NAME", "join only the service with this `--name`", .shown = "none",
     .read = knob_read_text, OF(service)},
    {"provider", "NAME", "libfabric provider of the data plane", .preset = "tcp",
     .read = knob_read_text, OF(provider), .is_handed = true},
    LANE_INTERFACE(struct cli_aggregator, ALL, "the data plane", "route to the coordinator"),
    LANE_ADVERTISE(struct cli_aggregator, ALL),
    LANE_ALLOW_UID(struct cli_aggregator, ALL),
    LANE_CORES(struct cli_aggregator, ALL),
    LANE_PER_CORE(struct cli_aggregator, ALL),
    LANE_DATA_PORT(struct cli_aggregator, ALL),
    LANE_NETWORK_GBIT(struct cli_aggregator, ALL),
    {"kernels", "best|c|avx2|avx512",
     "instruction set of the sums: `best`, `c`, `avx2`, `avx512`; the bits are the same",
     .preset = "best", .read = knob_read_choice, OF(kernels), .is_handed = true},
    {"lane-policy", "fair|shortest|fifo",
     "job that gets the next chunk: `fair`: in turn, `shortest`: least work, `fifo`: first ready",
     .preset = "fair", .read = knob_read_choice, OF(lane_policy), .is_handed = true},
    {"grant", "SECRET", "secret of a local aggregator, set by `serve` as a variable", KNOB_SECRET,
     .shown = "none", .read = knob_read_text, OF(grant)},
    LANE_ORPHAN_TIMEOUT(struct cli_aggregator, ALL, "0",
                        "time without a coordinator until the process ends; 0: never"),
    LANE_LEAVE_TIMEOUT(struct cli_aggregator, ALL),
    CONFIG_KNOBS(ALL),
    {0},
};
/* clang-format on */

static int aggregator_check(void *options, struct err *err)
{
    const struct cli_aggregator *o = options;
    return o->join ? 0 : err_set(err, -EINVAL, "--join is required: the coordinator's host:port");
}

static const struct knob_section aggregator_sections[] = {[ALL] = {NULL, NULL, NULL}};

const struct knob_command aggregator_command = {
    .name = "gradpool aggregator",
    .knobs = aggregator_knobs,
    .reads_variables = true,
    .check = aggregator_check,
    .part = "aggregator",
    .other = &serve_command,
    .sections = aggregator_sections,
    .sections_count = 1,
    .options_bytes = sizeof(struct cli_aggregator),
    .before = "Adds this host's cores to a gradpool service: one lane for each core, which sums "
              "the gradients of the jobs that the coordinator places on it.",
    .after = "Examples:\n"
             "  gradpool aggregator --join node7:7077\n"
             "  gradpool aggregator --join 10.0.0.7:7077 --cores 0-15 --interface eth1\n\n"
             "An option can be given as the environment variable in brackets, or as a key of the "
             "section [aggregator] of the configuration file. The command line takes precedence "
             "over the variable, and the variable over the file.\n\n"
             "After SIGTERM, SIGHUP or Ctrl-C the tasks and state of the aggregator move to "
             "other aggregators while jobs train, and the process ends. A second SIGTERM or "
             "Ctrl-C ends the process at once. Exit code: 0 after such an end, 1 if the "
             "aggregator could not start or was refused, 2 for a mistake on the command line, in "
             "a variable or in the file."};

void cli_aggregator_parse(int argc, char **argv, struct cli_aggregator *ret_options)
{
    struct cli_aggregator o = {0};
    knobs_parse(&aggregator_command, argc, argv, &o);
    *ret_options = o;
}
