/* An aggregator process: its lanes, and the control connection to the coordinator. */
#ifndef GRADPOOL_AGGREGATOR_AGGREGATOR_H
#define GRADPOOL_AGGREGATOR_AGGREGATOR_H

#include <stddef.h>
#include <stdint.h>

struct aggregator_options {
    const char *join;    /* coordinator address, as HOST:PORT, gradpool://... or unix:/path */
    const char *service; /* name of the service; NULL: none */
    /* cores of the lanes, such as "0-3,8"; NULL: all that this process may use */
    const char *cores;
    /* number of lanes on each core; 0: one. A larger number is for tests only */
    uint32_t lanes_per_core;
    const char *advertise; /* name or address of this host, used by workers; NULL: detected */
    /* network interface on which the lanes listen; NULL: the one used to reach the coordinator */
    const char *interface_name;
    /* bandwidth of that interface; 0: the value that the kernel reports */
    uint64_t network_bytes_per_s;
    /* port of the first lane; each further lane uses the next port; 0: any free ports */
    uint16_t data_port;
    const char *provider;    /* libfabric provider; NULL: tcp */
    const char *kernels;     /* instruction set for sums: c, avx2, ...; NULL: best */
    const char *lane_policy; /* order of jobs on a lane: fair, shortest or fifo; NULL: fair */
    /* secret from the provisioner; NULL: an operator has started the process */
    const char *grant;
    /* users that may connect over shared memory, in addition to the user of this process */
    const uint32_t *allowed_uids;
    size_t allowed_uids_count;
    /* Time without a coordinator after which the process ends; at most a minute if it has neither
     * workers nor copies. 0: no limit. */
    uint64_t orphan_timeout_ns;
    /* Time after a signal in which tasks and state may move to other aggregators; 0: the process
     * ends at once. */
    uint64_t leave_timeout_ns;
};

/* Runs an aggregator process until its end. `options` must stay valid. All errors are logged.
 * Returns:
 *   0  the aggregator was drained, or --orphan-timeout passed without a coordinator
 *   -EINVAL, -ENODEV  an option is wrong
 *   -ESTALE  the coordinator counts this process as lost; the caller may start a new one
 *   any other negative errno  the start failed or was refused
 *
 * After SIGTERM, SIGINT or SIGHUP, tasks and state first move to other aggregators. A second
 * SIGTERM or SIGINT ends the process at once. */
int aggregator_run(const struct aggregator_options *options);

#endif
