/* The control plane: sessions, jobs, routes of pieces, and the aggregator processes. One process,
 * one thread; no gradient passes through it. See README.md. */
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
    const char *state_dir;      /* created if missing, with parents; mode 0700 */
    const char *operators;      /* group (name or number) that may use the socket; NULL: none */
    const char *listen;         /* gradpool://host:port; port 0: any free port */
    bool insecure;              /* jobs of other hosts need no key */
    bool require_tls;           /* every connection over TCP needs a key */
    const char *advertise;      /* host or address in the service's URL; NULL: found */
    const char *interface_name; /* interface to listen on; NULL: any */
    uint32_t aggregators;       /* local processes; with `scales`, at most */
    const char *cores;          /* cores for all local aggregators; NULL: all */
    const char *policy;         /* policy of the packer; NULL: shared */
    uint64_t piece_bytes_max;   /* most bytes of a piece and of a task; 0: 4 MiB */
    uint32_t loss_limit_ppm;    /* loss limit of every job; 0: none is named */
    enum durability durability; /* default for jobs; UNSAID: none */
    uint32_t lanes_per_core;    /* more than 1 only for tests */
    uint32_t network_gbit;      /* network of local lanes; 0: as the kernel reports */
    uint16_t data_port;         /* port of the first local lane; 0: any free ports */
    const char *allow_uids;     /* "1000,1001": users whose workers may share memory */
    /* How long a local aggregator lives without a coordinator; 0: for ever. */
    uint64_t orphan_timeout_ns;
    /* Time for a local aggregator that is asked to end to hand over its tasks; 0: none. */
    uint64_t leave_timeout_ns;
    /* SIGTERM ends jobs, also those in training (--stop jobs). */
    bool ends_jobs;
    /* SIGTERM leaves jobs to the next start, even if local aggregators seem to end with this
     * process (--stop service). */
    bool keeps_jobs;
    uint64_t aggregator_timeout_ns; /* silence after which an aggregator is lost; 0: never */
    uint64_t local_timeout_ns;      /* for a living local process; 0: the same */
    uint64_t worker_timeout_ns;     /* silence of its host, then a worker is lost; 0: by TCP */
    uint64_t job_end_ns;            /* wait of a join for a former job's end; 0: 8 s */
    uint64_t measure_ns;            /* time between two looks at jobs; 0: 1 s */
    uint64_t idle_ns;               /* time without a round, then a job is idle; 0: 1 minute */
    /* Lanes open and park, local aggregators start and stop, by load; needs a policy with a loss
     * limit. */
    bool scales;
    uint32_t aggregators_min;                   /* local aggregators that stay; 0: 1 */
    uint32_t lanes_min, lanes_max, lanes_spare; /* fields of scale_options */
    bool explores;                              /* load leaves slow lanes */
    /* Baseline of benchmarks: load in proportion to rates, and a moved task stays. */
    bool explores_blindly;
    uint64_t scale_hold_ns; /* low load before a lane drains; 0: 30 s */
    uint64_t order_hold_ns; /* how long growth spares a moved job; 0: not at all */
    /* Wait of a declare for a lane; 0: as its worker says, else 10 s. */
    uint64_t start_wait_ns;
    const char *name;     /* name that aggregators must give; NULL: none given */
    struct limits limits; /* all zero: defaults of limits_init() */
    /* Owned from the call on, also on failure; NULL: local processes. */
    struct provisioner *provisioner;
    struct display display;   /* owned likewise; all zero: none */
    uint32_t store_pages_max; /* most pages of 4 KiB; 0: no limit */
};

/* Locks the state dir, restores its contents, listens and starts the local aggregators. Errors,
 * each with a text that says what to do: -EINVAL and -ENODEV (an option), -EBUSY (another process
 * has the state dir), -EADDRINUSE, -EROFS, -ENOSPC, -EACCES, ... */
int coordinator_create(const struct coordinator_options *options, struct coordinator **ret_c,
                       struct err *err);
/* Frees the coordinator; running aggregators are left to a later one. NULL is fine. */
void coordinator_destroy(struct coordinator *c);

/* Handles one event, after a wait until `deadline_ns` at most. 1: the service runs on; 0: it has
 * ended; negative: errno of the loop. */
int coordinator_step(struct coordinator *c, uint64_t deadline_ns);
/* Runs until SIGTERM, SIGINT or `gradpool stop` has ended the service; SIGTERM, SIGINT and SIGHUP
 * must be blocked. 0: an end in order, or jobs are left to the next start; a signal's number: a
 * second signal ended everything at once; a negative errno: the service could not go on, for the
 * reason in the log. */
int coordinator_run(struct coordinator *c);
/* Acts as if signal `number` had arrived (K91, K92). */
void coordinator_signal(struct coordinator *c, int number);

/* URL of the service, such as "gradpool://127.0.0.1:7077", with the port in use. */
const char *coordinator_endpoint(const struct coordinator *c);

#endif
