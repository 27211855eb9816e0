/* Options about lanes that `serve` and `aggregator` have in common. Each macro is a row of a
 * command's table. `type`: options struct of the command, which has a field `lanes` of type struct
 * cli_lanes. `group`: the section. */
#ifndef GRADPOOL_CLI_OPTIONS_LANE_OPTIONS_H
#define GRADPOOL_CLI_OPTIONS_LANE_OPTIONS_H

#include "svc/cli/cli.h"
#include "svc/cli/options/knob.h"

/* Parses a list of users into a struct cli_lanes. */
int lane_read_uids(void *lanes, const struct knob *knob, const char *value, struct err *err);
/* Parses a host without a port into a const char *. */
int lane_read_host(void *field, const struct knob *knob, const char *value, struct err *err);

/* clang-format off */
#define LANE_ADVERTISE(type, group)                                                              \
    {"advertise", "HOST", "name or address by which other hosts reach this host",                \
     .section = group,                                                                           \
     .shown = "detected", .read = lane_read_host, KNOB_FIELD(type, lanes.advertise)}
#define LANE_INTERFACE(type, group, what, preset)                                                \
    {"interface", "NAME", "network interface of " what, .section = group, .shown = preset,       \
     .read = knob_read_text, KNOB_FIELD(type, lanes.interface_name)}
#define LANE_ALLOW_UID(type, group)                                                              \
    {"allow-uid", "UIDS", "users whose workers may share memory with lanes", .section = group,   \
     .shown = "own", .read = lane_read_uids, KNOB_FIELD(type, lanes)}
#define LANE_CORES(type, group)                                                                  \
    {"cores", "LIST", "cores for lanes, as in `0-3,8`; one lane for each physical core",         \
     .section = group, .shown = "all allowed", .read = knob_read_text,                           \
     KNOB_FIELD(type, lanes.cores)}
#define LANE_PER_CORE(type, group)                                                               \
    {"lanes-per-core", "N", "lanes on each core; more than 1 is for tests only",                 \
     .section = group, .preset = "1",                                                            \
     .least = 1, .most = 64, .read = knob_read_number, KNOB_FIELD(type, lanes.lanes_per_core)}
#define LANE_DATA_PORT(type, group)                                                              \
    {"data-port", "PORT", "TCP port of the first lane; each further lane has the next port",     \
     .section = group,                                                                           \
     .shown = "a free port", .most = 65535, .read = knob_read_number,                            \
     KNOB_FIELD(type, lanes.data_port)}
#define LANE_NETWORK_GBIT(type, group)                                                           \
    {"network-gbit", "GBIT", "speed of the data network, which placement does not exceed",       \
     .section = group, .shown = "from the kernel", .least = 1, .most = 100000,                   \
     .read = knob_read_number, KNOB_FIELD(type, lanes.network_gbit)}
#define LANE_ORPHAN_TIMEOUT(type, group, default_s, text)                                        \
    {"orphan-timeout", "SECONDS", text, .section = group, .preset = default_s, .unit = "s",      \
     .most = 86400u * 365, .read = knob_read_number, KNOB_FIELD(type, lanes.orphan_timeout_s)}
/* Kubernetes kills a process 30 s after SIGTERM, so the default is shorter. */
#define LANE_LEAVE_TIMEOUT(type, group)                                                          \
    {"leave-timeout", "SECONDS",                                                                 \
     "longest time for moving tasks and state after SIGTERM; 0: no move",                        \
     .section = group, .preset = "20", .unit = "s", .most = 86400, .read = knob_read_number,     \
     KNOB_FIELD(type, lanes.leave_timeout_s)}
#define CONFIG_KNOBS(group)                                                                      \
    {"config", "FILE", "configuration file; `/dev/null`: none", KNOB_LINE, group,                \
     .shown = "`" CONFIG_FILE_PRESET "`, if it is there"},                                       \
    {"print-config", NULL, "print each value and its origin as a configuration file, and end",   \
     KNOB_LINE, group, .shown = "off"}
/* clang-format on */

#endif
