/* gradpool aggregator: its options. */
#include "svc/cli/cli.h"
#include "svc/cli/knobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    JOIN,
    CORES,
    ADVERTISE,
    INTERFACE,
    DATA_PORT,
    ALLOW_UID,
    PROVIDER,
    ORPHAN_TIMEOUT,
    GRANT,
    LANES_PER_CORE,
    KERNELS
};

const struct knob aggregator_knobs[] = {
    [JOIN] = {"join", "HOST:PORT",
              "the coordinator: host:port, gradpool://host:port or unix:PATH (required)"},
    [CORES] = {"cores", "LIST",
               "cores to use, like 0-3,8: one lane each (default: all that this process may use)"},
    [ADVERTISE] = {"advertise", "HOST", "name or address told to workers (default: found out)"},
    [INTERFACE] = {"interface", "NAME",
                   "network interface for data (default: the way to the coordinator)"},
    [DATA_PORT] = {"data-port", "PORT",
                   "TCP port of the first lane, the others count up; 0: any "
                   "free ones (default: 0)"},
    [ALLOW_UID] = {"allow-uid", "UIDS",
                   "users, like 1000,1001, whose workers may share memory "
                   "with it (default: its own)"},
    [PROVIDER] = {"provider", "NAME", "libfabric provider (default: tcp)"},
    [ORPHAN_TIMEOUT] = {"orphan-timeout", "SECONDS",
                        "end when there has been no coordinator for "
                        "so long and no worker is connected; 0: never (default: 0)"},
    [GRANT] = {"grant", "SECRET",
               "from the coordinator that started it; better given in the "
               "environment, which other users cannot read"},
    [LANES_PER_CORE] = {"lanes-per-core", "N", "more than 1 only for tests (default: 1)"},
    [KERNELS] = {"kernels", "SET",
                 "instruction set of the sums: best, c, avx2 or avx512; the bits are the same "
                 "(default: best)"},
    {0},
};

static int set_uids(struct cli_aggregator *o, const char *value, struct err *err)
{
    char list[1024];
    o->allow_uids_count = 0;
    if (snprintf(list, sizeof list, "%s", value) >= (int)sizeof list)
        return err_set(err, -EINVAL, "the list is too long");
    for (char *rest = list, *item; (item = strsep(&rest, ","));) {
        unsigned long long uid;
        if (o->allow_uids_count == CLI_UIDS_MAX)
            return err_set(err, -EINVAL, "at most %d users", CLI_UIDS_MAX);
        int error = knobs_number(item, 0, UINT32_MAX - 1, &uid, err);
        if (error < 0)
            return error;
        o->allow_uids[o->allow_uids_count++] = (uint32_t)uid;
    }
    return 0;
}

static int set(void *context, int index, const char *value, struct err *err)
{
    struct cli_aggregator *o = context;
    unsigned long long number = 0;
    int error = 0;
    switch (index) {
    case JOIN: o->join = value; break;
    case CORES: o->cores = value; break;
    case ADVERTISE: o->advertise = value; break;
    case INTERFACE: o->interface_name = value; break;
    case PROVIDER: o->provider = value; break;
    case GRANT: o->grant = value; break;
    case KERNELS: o->kernels = value; break;
    case ALLOW_UID: return set_uids(o, value, err);
    case DATA_PORT:
        error = knobs_number(value, 0, 65535, &number, err);
        o->data_port = (uint16_t)number;
        break;
    case ORPHAN_TIMEOUT:
        error = knobs_number(value, 0, 86400u * 365, &number, err);
        o->orphan_timeout_s = number;
        break;
    case LANES_PER_CORE:
        error = knobs_number(value, 1, 64, &number, err);
        o->lanes_per_core = (uint32_t)number;
        break;
    }
    return error;
}

void cli_aggregator_parse(int argc, char **argv, struct cli_aggregator *ret_options)
{
    static const struct knob_command command = {
        .name = "gradpool aggregator",
        .knobs = aggregator_knobs,
        .set = set,
        .before =
            "Adds this host's cores to a gradpool service: one lane for each core, which sums "
            "the gradients of the jobs that the coordinator places on it.",
        .after = "Examples:\n"
                 "  gradpool aggregator --join node7:7077\n"
                 "  gradpool aggregator --join 10.0.0.7:7077 --cores 0-15 --interface eth1\n\n"
                 "Each option can be given as the environment variable in brackets; the command "
                 "line wins.\n\n"
                 "SIGTERM and Ctrl-C drain. Exit code: 0 drained, 1 could not start or was "
                 "refused, 2 for a mistake on the command line."};
    struct cli_aggregator o = {.lanes_per_core = 1};
    knobs_parse(&command, argc, argv, &o);
    if (!o.join) {
        fprintf(stderr, "gradpool aggregator: --join is required: the coordinator's host:port\n"
                        "Try `gradpool aggregator --help' for more information.\n");
        exit(CLI_USAGE);
    }
    *ret_options = o;
}
