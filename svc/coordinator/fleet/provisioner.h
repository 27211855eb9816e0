/* Interface that starts and stops aggregator processes. The only implementation uses fork and exec
 * on this host; one for a cluster manager could be added. fleet.c decides how many processes
 * run. */
#ifndef GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H
#define GRADPOOL_COORDINATOR_FLEET_PROVISIONER_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Options of an aggregator's command line. Each field is one option. */
struct provision {
    const char *join, *service; /* service: name of the service; NULL: none */
    const char *cores;
    /* secret for one join; passed in the environment, because other users could read the command
     * line */
    const char *grant;
    const char *advertise, *interface_name, *allow_uids; /* NULL: the option is left out */
    uint32_t lanes_per_core, network_gbit; /* network_gbit 0: the option is left out */
    uint16_t data_port;
    uint64_t orphan_timeout_ns, leave_timeout_ns;
};

struct provisioned {
    int pid; /* number of the process on this host; 0: the process runs elsewhere */
    /* descriptor that becomes readable when the process has ended; the caller closes it */
    int watch_fd;
};

struct provisioner;
struct provisioner_ops {
    int (*start)(struct provisioner *p, const struct provision *what, struct provisioned *ret_it,
                 struct err *err);
    /* Reaps a process after its watch_fd has become readable. Writes how the process ended, such as
     * "exit code 1". Returns whether the exit code was other than 0. */
    bool (*collect)(struct provisioner *p, const struct provisioned *it, char *buffer,
                    size_t buffer_bytes);
    /* Requests that the process drains and ends (SIGTERM), or kills it if `now`. */
    void (*stop)(struct provisioner *p, const struct provisioned *it, bool now);
    void (*destroy)(struct provisioner *p);
};
struct provisioner {
    const struct provisioner_ops *ops;
};

/* Creates a provisioner that runs this program as `gradpool aggregator`. Each process has a process
 * group of its own, so Ctrl-C in a terminal reaches only the coordinator. Processes continue after
 * the end of the coordinator. */
int provisioner_local_create(struct provisioner **ret_provisioner);

#endif
