/* How aggregator processes come into being: fork and exec on this host first; a cluster engine can
 * be another. Which ones are wanted is not decided here (fleet.c). */
#ifndef GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H
#define GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an aggregator is started with; the fields are its command-line options. */
struct provision {
    const char *join, *service; /* service: its name; NULL: none */
    const char *cores;
    const char *grant; /* handed over where other users cannot read it */
    const char *advertise, *interface_name, *allow_uids; /* NULL: not given */
    uint32_t lanes_per_core, network_gbit;               /* network_gbit 0: not given */
    uint16_t data_port;
    uint64_t orphan_timeout_ns, leave_timeout_ns;
};

struct provisioned {
    int pid;      /* on this host; 0: elsewhere */
    int watch_fd; /* readable when it has ended; the caller closes it */
};

struct provisioner;
struct provisioner_ops {
    int (*start)(struct provisioner *p, const struct provision *what, struct provisioned *ret_it,
                 struct err *err);
    /* After watch_fd became readable: lets it go and says how it ended ("exit code 1"). Whether it
     * gave up by itself: neither well nor killed. */
    bool (*collect)(struct provisioner *p, const struct provisioned *it, char *buffer,
                    size_t buffer_bytes);
    /* Asks it to end (drain), or ends it now. */
    void (*stop)(struct provisioner *p, const struct provisioned *it, bool now);
    void (*destroy)(struct provisioner *p);
};
struct provisioner {
    const struct provisioner_ops *ops;
};

/* Starts this program again as `aggregator`, in a process group of its own, so that Ctrl-C in a
 * terminal reaches the coordinator only. It outlives the coordinator. */
int provisioner_local_create(struct provisioner **ret_provisioner);

#endif
