/* Start of aggregator processes: fork and exec on this host; a cluster engine could be another way.
 * fleet.c decides which processes are wanted. */
#ifndef GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H
#define GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Command line of an aggregator, one field an option. */
struct provision {
    const char *join, *service; /* service: name of the service; NULL: none */
    const char *cores;
    const char *grant; /* passed so that other users cannot read it */
    const char *advertise, *interface_name, *allow_uids; /* NULL: option is left out */
    uint32_t lanes_per_core, network_gbit;               /* network_gbit 0: option is left out */
    uint16_t data_port;
    uint64_t orphan_timeout_ns, leave_timeout_ns;
};

struct provisioned {
    int pid;      /* on this host; 0: elsewhere */
    int watch_fd; /* readable after the end; the caller closes it */
};

struct provisioner;
struct provisioner_ops {
    int (*start)(struct provisioner *p, const struct provision *what, struct provisioned *ret_it,
                 struct err *err);
    /* Reaps a process after watch_fd became readable, and writes how it ended ("exit code 1").
     * Returns whether the process gave up by itself: an exit code other than 0. */
    bool (*collect)(struct provisioner *p, const struct provisioned *it, char *buffer,
                    size_t buffer_bytes);
    /* Requests the end of the process (drain), or kills it if `now`. */
    void (*stop)(struct provisioner *p, const struct provisioned *it, bool now);
    void (*destroy)(struct provisioner *p);
};
struct provisioner {
    const struct provisioner_ops *ops;
};

/* A provisioner that starts this program as `aggregator`, in a process group of its own, so that
 * Ctrl-C in a terminal reaches the coordinator only. The process outlives the coordinator. */
int provisioner_local_create(struct provisioner **ret_provisioner);

#endif
