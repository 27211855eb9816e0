/* The control plane: sessions, jobs, routes of pieces, and the aggregator processes. One process
 * with one thread. No gradient passes through the coordinator. README.md has the map. */
#ifndef GRADPOOL_COORDINATOR_COORDINATOR_H
#define GRADPOOL_COORDINATOR_COORDINATOR_H

#include "svc/base/err.h"
#include "svc/coordinator/view/display.h"
#include "svc/wire/durability.h"
#include "svc/wire/limit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coordinator;
struct provisioner;

/* Options of `gradpool serve`. coordinator_create() copies all strings. */
struct coordinator_options {
    const char *state_dir;      /* directory; created with its parents if missing; mode 0700 */
    const char *operators;      /* group (name or number) that may use the socket; NULL: none */
    const char *listen;         /* gradpool://host:port; port 0: any free port */
    bool insecure;              /* jobs of other hosts need no key */
    bool require_tls;           /* every connection over TCP needs a key */
    const char *advertise;      /* host or address in the URL of the service; NULL: detected */
    const char *interface_name; /* network interface to listen on; NULL: all */
    uint32_t aggregators; /* number of local aggregator processes; with `scales`, their maximum */
    const char *cores;    /* cores that all local aggregators together may use; NULL: all */
    const char *policy;   /* policy of the packer; NULL: shared */
    uint64_t piece_bytes_max;   /* maximum bytes of a piece, and of a task; 0: 4 MiB */
    uint32_t loss_limit_ppm;    /* loss limit of every job; 0: no limit is set here */
    enum durability durability; /* default for jobs; UNSAID: no default */
    uint32_t lanes_per_core;    /* more than 1 for tests only */
    uint32_t network_gbit;  /* bandwidth for local lanes; 0: the value that the kernel reports */
    uint16_t data_port;     /* port of the first local lane; 0: any free ports */
    const char *allow_uids; /* users whose workers may use shared memory, such as "1000,1001" */
    /* Time after which a local aggregator ends without a coordinator; 0: never. */
    uint64_t orphan_timeout_ns;
    /* Time in which a local aggregator that is ending may move its tasks away; 0: none. */
    uint64_t leave_timeout_ns;
    /* SIGTERM ends jobs, even jobs in training (--stop jobs). */
    bool ends_jobs;
    /* SIGTERM leaves jobs to the next start of the service, even if local aggregators seem to end
     * together with this process (--stop service). */
    bool keeps_jobs;
    uint64_t aggregator_timeout_ns; /* silence after which an aggregator is lost; 0: never */
    /* the same for a local aggregator whose process is alive; 0: the same value */
    uint64_t local_timeout_ns;
    /* silence of a worker's host after which the worker is lost; 0: left to TCP */
    uint64_t worker_timeout_ns;
    uint64_t job_end_ns; /* time for which a join waits for the end of a former job; 0: 8 s */
    uint64_t measure_ns; /* time between two measurements of jobs; 0: 1 s */
    uint64_t idle_ns;    /* time without a round after which a job is idle; 0: 1 minute */
    /* The number of open lanes and of local aggregators follows the load. Needs a policy with a
     * loss limit. */
    bool scales;
    uint32_t aggregators_min; /* number of local aggregators that always run; 0: 1 */
    uint32_t lanes_min, lanes_max, lanes_spare; /* fields of scale_options */
    bool explores;                              /* the service moves load away from slow lanes */
    /* For comparisons in benchmarks: load is divided by measured rates, and a moved task stays. */
    bool explores_blindly;
    uint64_t scale_hold_ns; /* time with low load after which a lane is drained; 0: 30 s */
    /* time for which growth does not move a job that an order has moved; 0: none */
    uint64_t order_hold_ns;
    /* Time for which a declare waits for a new lane; 0: the time that the worker requests, or 10
     * s. */
    uint64_t start_wait_ns;
    const char *name;     /* name that aggregators must send; NULL: any */
    struct limits limits; /* all zero: defaults of limits_init() */
    /* Owned by the coordinator from the call on, even after an error. NULL: local processes. */
    struct provisioner *provisioner;
    struct display display;   /* owned like `provisioner`; all zero: none */
    uint32_t store_pages_max; /* maximum size of the store in pages of 4 KiB; 0: no limit */
};

/* Locks the state directory, restores its contents, listens and starts the local aggregators. The
 * text of each error has the remedy: -EINVAL and -ENODEV (an option), -EBUSY (another process uses
 * the state directory), -EADDRINUSE, -EROFS, -ENOSPC, -EACCES, ... */
int coordinator_create(const struct coordinator_options *options, struct coordinator **ret_c,
                       struct err *err);
/* Frees the coordinator. Running aggregators continue, for the next start. NULL is fine. */
void coordinator_destroy(struct coordinator *c);

/* Handles one event; waits for it until `deadline_ns` at most. 1: the service continues; 0: the
 * service has ended; negative errno: the event loop failed. */
int coordinator_step(struct coordinator *c, uint64_t deadline_ns);
/* Runs until SIGTERM, SIGINT or `gradpool stop` has ended the service. The caller has blocked
 * SIGTERM, SIGINT and SIGHUP. 0: the service ended in order, or left its jobs to the next start;
 * the number of a signal: a second signal ended the service at once; a negative errno: the service
 * could not continue, and the log has the reason. */
int coordinator_run(struct coordinator *c);
/* Acts as if signal `number` had arrived (K91, K92). */
void coordinator_signal(struct coordinator *c, int number);

/* Returns the URL of the service with the port in use, such as "gradpool://127.0.0.1:7077". */
const char *coordinator_endpoint(const struct coordinator *c);

#endif
