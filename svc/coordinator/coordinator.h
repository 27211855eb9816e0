/* The coordinator is the control plane: one process with one thread, which manages sessions, jobs,
 * routes of pieces, and the aggregator processes. Gradients never pass through the coordinator.
 * README.md has the map. */
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

enum coordinator_exploring {
    COORDINATOR_EXPLORES_NOT,
    COORDINATOR_EXPLORES,
    /* For benchmarks only: load is divided in proportion to measured speeds, and tasks never move
     * back. */
    COORDINATOR_EXPLORES_BLINDLY,
};

/* Options of `gradpool serve`. coordinator_create() copies all strings. */
struct coordinator_options {
    const char *state_dir;      /* directory; created with its parents if missing; mode 0700 */
    const char *operators;      /* group (name or number) that may use the socket; NULL: none */
    const char *listen;         /* gradpool://host:port; port 0: any free port */
    bool insecure;              /* workers on other hosts need no key */
    bool require_tls;           /* every connection over TCP needs a key */
    const char *advertise;      /* host or address in the URL of the service; NULL: detected */
    const char *interface_name; /* network interface to listen on; NULL: all */
    uint32_t aggregators; /* number of local aggregator processes; with `scales`, their maximum */
    const char *cores;    /* cores that all local aggregators together may use; NULL: all */
    /* slots for workers of pools at each site, such as "node7=8,node8=4"; NULL: no site */
    const char *worker_slots;
    const char *policy;         /* placement policy of the packer; NULL: "shared" */
    uint64_t piece_bytes_max;   /* maximum bytes of a piece, and of a task; 0: 4 MiB */
    uint32_t loss_limit_ppm;    /* default loss limit of jobs, in millionths; 0: no default */
    enum durability durability; /* default durability of jobs; UNSAID: no default */
    uint32_t lanes_per_core;    /* more than 1 for tests only */
    uint32_t network_gbit;  /* bandwidth for local lanes; 0: the value that the kernel reports */
    uint16_t data_port;     /* port of the first local lane; 0: any free ports */
    const char *allow_uids; /* user ids whose workers may use shared memory, such as "1000,1001" */
    /* A local aggregator ends after this time without a connection to a coordinator; 0: never. */
    uint64_t orphan_timeout_ns;
    /* Longest time for which an ending local aggregator may move its tasks to other aggregators; 0:
     * no time. */
    uint64_t leave_timeout_ns;
    /* SIGTERM ends all jobs, even jobs in training (--stop jobs). */
    bool ends_jobs;
    /* SIGTERM ends no job (--stop service), even if local aggregators are expected to end together
     * with this process. The next start of the service continues the jobs. */
    bool keeps_jobs;
    uint64_t aggregator_timeout_ns; /* silence after which an aggregator is lost; 0: never */
    /* silence after which a local aggregator is lost although its process is alive; 0: the same as
     * aggregator_timeout_ns */
    uint64_t local_timeout_ns;
    /* silence of a worker's host after which the worker is lost; 0: only TCP detects the loss */
    uint64_t worker_timeout_ns;
    /* longest wait of a join for the end of a former job with the same name; 0: 8 s */
    uint64_t job_end_ns;
    uint64_t measure_ns; /* time between two measurements of jobs; 0: 1 s */
    uint64_t idle_ns;    /* time without a round after which a job counts as idle; 0: 1 minute */
    /* The numbers of open lanes and of local aggregators follow the load. Requires a policy with a
     * loss limit. */
    bool scales;
    uint32_t aggregators_min; /* number of local aggregators that always run; 0: 1 */
    uint32_t lanes_min, lanes_max, lanes_spare; /* see struct scale_options */
    enum coordinator_exploring explores;        /* the service moves load away from slow lanes */
    uint64_t scale_hold_ns; /* time with low load after which a lane is drained; 0: 30 s */
    /* time after an operator's order to move a job, in which growth does not move the job; 0:
     * none */
    uint64_t order_hold_ns;
    /* Longest time for which a declare waits for a new lane; 0: the time in the worker's request,
     * or 10 s. */
    uint64_t start_wait_ns;
    const char *name;     /* service name that a joining aggregator must send; NULL: any */
    struct limits limits; /* all zero: defaults of limits_init() */
    /* Owned by the coordinator once coordinator_create() is called, even after a failure. NULL:
     * aggregators are local processes. */
    struct provisioner *provisioner;
    struct display display;   /* owned like `provisioner`; all zero: no display */
    uint32_t store_pages_max; /* maximum size of the store in pages of 4 KiB; 0: no limit */
};

/* Locks the state directory, restores its contents, listens, and starts the local aggregators.
 * Returns 0 or a negative errno: -EINVAL and -ENODEV for a wrong option, -EBUSY if another process
 * uses the state directory, -EADDRINUSE, -EROFS, -ENOSPC, -EACCES or another system error. The text
 * in `err` says what to do. */
int coordinator_create(const struct coordinator_options *options, struct coordinator **ret_c,
                       struct err *err);
/* Frees the coordinator. Running aggregators continue and wait for the next start. NULL is
 * allowed. */
void coordinator_destroy(struct coordinator *c);

/* Handles one event, after a wait until `deadline_ns` at most. Returns 1 if the service continues,
 * 0 if the service has ended, or a negative errno if the event loop failed. */
int coordinator_step(struct coordinator *c, uint64_t deadline_ns);
/* Runs until SIGTERM, SIGINT or `gradpool stop` has ended the service. The caller has blocked
 * SIGTERM, SIGINT and SIGHUP. Returns 0 if the service ended in order, or left its jobs to the next
 * start. Returns the signal's number if a second signal ended the service at once. Returns a
 * negative errno if the service could not continue; the log has the reason. */
int coordinator_run(struct coordinator *c);
/* Handles signal `number` as if the process had received this signal (K91, K92). */
void coordinator_signal(struct coordinator *c, int number);

/* Returns the URL of the service with the port in use, such as "gradpool://127.0.0.1:7077". */
const char *coordinator_endpoint(const struct coordinator *c);

#endif
