/* An aggregator process: its lanes, and the control connection to the coordinator. */
#ifndef GRADPOOL_AGGREGATOR_AGGREGATOR_H
#define GRADPOOL_AGGREGATOR_AGGREGATOR_H

#include <stddef.h>
#include <stdint.h>

struct aggregator_options {
    const char *join;        /* address of the coordinator: host:port, gradpool://..., unix:/path */
    const char *service;     /* name of the service; NULL: none */
    const char *cores;       /* cores of the lanes, "0-3,8"; NULL: all that this process may use */
    uint32_t lanes_per_core; /* lanes on each core; 0: one; more than one only for tests */
    const char *advertise;   /* name or address of this host, for workers; NULL: detected */
    /* lanes listen on this interface; NULL: the one towards the coordinator */
    const char *interface_name;
    uint64_t network_bytes_per_s; /* capacity of that interface; 0: as the kernel reports */
    uint16_t data_port;      /* port of the first lane, the others count up; 0: any free ports */
    const char *provider;    /* libfabric provider; NULL: tcp */
    const char *kernels;     /* instruction set of the sums: c, avx2, ...; NULL: best */
    const char *lane_policy; /* fair, shortest, fifo; NULL: fair */
    const char *grant;       /* secret from the provisioner; NULL: joined by hand */
    const uint32_t *allowed_uids; /* uids that may connect over shared memory, besides our own */
    size_t allowed_uids_count;
    /* the process ends after this time without a coordinator; without workers and copies after at
     * most a minute; 0: never */
    uint64_t orphan_timeout_ns;
    /* after a signal, time to move tasks and state to other aggregators; 0: the process ends at
     * once */
    uint64_t leave_timeout_ns;
};

/* Runs an aggregator process until its end; `options` is lent. Returns 0: drained, or without a
 * coordinator until the end of --orphan-timeout; -EINVAL, -ENODEV: a wrong option; -ESTALE: the
 * coordinator counts this process as lost, and the caller may start a new one; another negative
 * errno: the start failed or was refused. All errors are logged.
 *
 * After SIGTERM, SIGINT or SIGHUP tasks and state move to other aggregators first; a second SIGTERM
 * or SIGINT ends the process at once. */
int aggregator_run(const struct aggregator_options *options);

#endif
