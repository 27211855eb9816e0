/* Starts aggregator processes. The present way is fork and exec on this host; a cluster manager
 * could be another. fleet.c decides which processes should run. */
#ifndef GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H
#define GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Command line of an aggregator, with one field for each option. */
struct provision {
    const char *join, *service; /* service: name of the service; NULL: none */
    const char *cores;
    const char *grant; /* passed in a way that other users cannot read */
    const char *advertise, *interface_name, *allow_uids; /* NULL: the option is left out */
    uint32_t lanes_per_core, network_gbit; /* network_gbit 0: the option is left out */
    uint16_t data_port;
    uint64_t orphan_timeout_ns, leave_timeout_ns;
};

struct provisioned {
    int pid;      /* number of the process on this host; 0: the process runs elsewhere */
    int watch_fd; /* readable after the end of the process; the caller closes it */
};

struct provisioner;
struct provisioner_ops {
    int (*start)(struct provisioner *p, const struct provision *what, struct provisioned *ret_it,
                 struct err *err);
    /* Reaps a process after watch_fd became readable, and writes how the process ended ("exit code
     * 1"). Returns whether the process gave up, that is, ended with an exit code other than 0. */
    bool (*collect)(struct provisioner *p, const struct provisioned *it, char *buffer,
                    size_t buffer_bytes);
    /* Sends a request to end (drain); if `now`, kills the process. */
    void (*stop)(struct provisioner *p, const struct provisioned *it, bool now);
    void (*destroy)(struct provisioner *p);
};
struct provisioner {
    const struct provisioner_ops *ops;
};

/* Creates a provisioner that starts this program as `gradpool aggregator`. The process gets a
 * process group of its own, so that Ctrl-C in a terminal reaches the coordinator only. The process
 * continues after the end of the coordinator. */
int provisioner_local_create(struct provisioner **ret_provisioner);

#endif
