/* Options that `serve` and `aggregator` share: they say how lanes run. Each table of knobs begins
 * with LANE_KNOBS, so that an index below LANE_OPTIONS means the same in both. */
#ifndef GRADPOOL_CLI_OPTIONS_LANE_OPTIONS_H
#define GRADPOOL_CLI_OPTIONS_LANE_OPTIONS_H

#include "svc/cli/cli.h"
#include "svc/cli/options/knobs.h"

#define LEAVE_TIMEOUT_S 20 /* less than the 30 s after which Kubernetes kills */

enum lane_option {
    LANE_ADVERTISE,
    LANE_INTERFACE,
    LANE_CORES,
    LANE_DATA_PORT,
    LANE_ALLOW_UID,
    LANE_ORPHAN_TIMEOUT,
    LANE_LEAVE_TIMEOUT,
    LANE_PER_CORE,
    LANE_NETWORK,
    LANE_OPTIONS,
};

/* clang-format off */
#define LANE_KNOBS                                                                               \
    [LANE_ADVERTISE] = {"advertise", "HOST", "name or address told to others (default: found "   \
                        "out)"},                                                                 \
    [LANE_INTERFACE] = {"interface", "NAME", "network interface to listen on (default: any for " \
                        "serve, the way to the coordinator for aggregator)"},                    \
    [LANE_CORES] = {"cores", "LIST", "cores for lanes, like 0-3,8, one lane each (default: all " \
                    "that this process may use)"},                                               \
    [LANE_DATA_PORT] = {"data-port", "PORT", "TCP port of the first lane, the others count up; " \
                        "0: any free ones (default: 0)"},                                        \
    [LANE_ALLOW_UID] = {"allow-uid", "UIDS", "users, like 1000,1001, whose workers may share "   \
                        "memory with lanes (default: the own one)"},                             \
    [LANE_ORPHAN_TIMEOUT] = {"orphan-timeout", "SECONDS", "aggregators end when there has been " \
                             "no coordinator for so long; after 60 at most if no worker is "     \
                             "connected; 0: never (default: 600 for serve, 0 for aggregator)"},  \
    [LANE_LEAVE_TIMEOUT] = {"leave-timeout", "SECONDS", "after SIGTERM an aggregator's tasks and " \
                            "state move to others first, for so long at most; 0: it ends at "    \
                            "once (default: 20)"},                                               \
    [LANE_PER_CORE] = {"lanes-per-core", "N", "more than 1 only for tests (default: 1)"},         \
    [LANE_NETWORK] = {"network-gbit", "GBIT", "speed of the network on which lanes listen "      \
                      "(default: as the kernel tells it of their interface, if it does)"}
/* clang-format on */

/* `index` below LANE_OPTIONS. */
int lane_option_set(struct cli_lanes *lanes, int index, const char *value, struct err *err);

#endif
