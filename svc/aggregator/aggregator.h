/* An aggregator process: its lanes, and the control connection on which the coordinator tells it
 * what to serve. */
#ifndef GRADPOOL_AGGREGATOR_AGGREGATOR_H
#define GRADPOOL_AGGREGATOR_AGGREGATOR_H

#include <stddef.h>
#include <stdint.h>

struct aggregator_options {
    const char *join;             /* the coordinator: host:port, gradpool://..., unix:/path */
    const char *service;          /* its name; NULL: none */
    const char *cores;            /* "0-3,8"; NULL: all that this process may use */
    uint32_t lanes_per_core;      /* 0 or 1: one; more only for tests */
    const char *advertise;        /* host or address told to workers; NULL: found out */
    const char *interface_name;   /* listen on this interface; NULL: the way to the coordinator */
    uint64_t network_bytes_per_s; /* of that interface; 0: as the kernel tells it */
    uint16_t data_port;           /* of the first lane, the others count up; 0: any free ones */
    const char *provider;         /* libfabric provider; NULL: tcp */
    const char *kernels;          /* instruction set of the sums: c, avx2, ...; NULL: best */
    const char *lane_policy;      /* fair, shortest, fifo; NULL: fair */
    const char *grant;            /* secret from the provisioner; NULL: joined by hand */
    const uint32_t *allowed_uids;
    size_t allowed_uids_count;
    uint64_t orphan_timeout_ns; /* exit when the coordinator stays away so long, without workers
                                   after a minute of it at most; 0: never */
    uint64_t leave_timeout_ns;  /* after a signal what is here moves to others, for so long at
                                   most; 0: it ends at once */
};

/* Joins, serves until drained, and returns: 0 drained, -EINVAL and -ENODEV: an option is wrong, any
 * -ESTALE: it was away and counts as lost, so it may join as a new one; any other negative errno:
 * could not start or was refused (all logged). After SIGTERM or SIGINT what is here moves to other
 * aggregators first; a second one ends it at once. */
int aggregator_run(const struct aggregator_options *options);

#endif
