/* The control plane: sessions, jobs, where each piece lies, and the aggregator processes. One
 * process, one thread; never on the way of a gradient. See README.md. */
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

/* Strings are copied. */
struct coordinator_options {
    const char *state_dir;      /* created if missing (its parents too), mode 0700 */
    const char *operators;      /* group, by name or number, that has the socket; NULL: ours */
    const char *listen;         /* gradpool://host:port; port 0: any free one */
    bool insecure;              /* let other hosts' jobs in without a key */
    bool require_tls;           /* let nobody in without a key but over the Unix socket */
    const char *advertise;      /* host or address told to others; NULL: found out */
    const char *interface_name; /* NULL: any */
    uint32_t aggregators;       /* local processes, at most where the service scales */
    const char *cores;          /* of these, split among the local ones; NULL: all */
    const char *policy;         /* a packer policy; NULL: shared */
    uint64_t piece_bytes_max;   /* of a piece and of a task; 0: 4 MiB */
    uint32_t loss_limit_ppm;    /* of each job; 0: none is named */
    enum durability durability; /* of jobs that do not say; UNSAID: none */
    uint32_t lanes_per_core;    /* more than 1 only for tests */
    uint32_t network_gbit;      /* of local lanes; 0: as the kernel tells it */
    uint16_t data_port;         /* of the first local lane; 0: any free ones */
    const char *allow_uids;     /* "1000,1001": users whose workers may share memory */
    uint64_t orphan_timeout_ns; /* local aggregators without a coordinator; 0: for ever */
    uint64_t leave_timeout_ns;  /* of local aggregators that are asked to end; 0: none */
    bool ends_jobs;             /* SIGTERM does, whatever trains */
    bool keeps_jobs;            /* SIGTERM does, also where local aggregators seem to end with us */
    uint64_t aggregator_timeout_ns; /* of one that answers no ping; 0: for ever */
    uint64_t local_timeout_ns;      /* of one whose process is seen to live; 0: the same */
    uint64_t worker_timeout_ns;     /* of a worker whose host is silent; 0: as TCP finds it */
    uint64_t job_end_ns;            /* a join waits so long for a former job's end; 0: 8 s */
    uint64_t measure_ns;            /* between two looks at what trains; 0: a second */
    uint64_t idle_ns;               /* without a round, and a job trains no more; 0: a minute */
    bool scales; /* lanes open and park, local aggregators start and stop; needs a policy with a
                    loss limit */
    uint32_t aggregators_min;                   /* local ones that are never stopped; 0: 1 */
    uint32_t lanes_min, lanes_max, lanes_spare; /* as scale_options has them */
    bool explores;                              /* load is shifted off slow lanes */
    bool explores_blindly;  /* a baseline: in proportion to rates, and what was moved stays */
    uint64_t scale_hold_ns; /* low load, until a lane drains; 0: 30 s */
    uint64_t order_hold_ns; /* growth leaves alone what an operator has moved; 0: it does not */
    uint64_t start_wait_ns; /* wait of a declare for a lane; 0: as its worker says, else 10 s */
    const char *name;       /* which aggregators name as their service; NULL: none */
    struct limits limits;   /* all zero: as limits_init() has them */
    struct provisioner *provisioner; /* taken over, also on failure; NULL: local processes */
    struct display display;          /* likewise; all zero: none */
    uint32_t store_pages_max;        /* of 4 KiB; 0: no limit */
};

/* Takes the state dir, restores what it holds, listens and starts the local aggregators.
 * Errors (each with a text that says what to do): -EINVAL and -ENODEV (an option), -EBUSY (the
 * state dir is in use: by whom), -EADDRINUSE, -EROFS, -ENOSPC, -EACCES, ... */
int coordinator_create(const struct coordinator_options *options, struct coordinator **ret_c,
                       struct err *err);
/* Kills nothing: aggregators that still run are left to a later coordinator. NULL is fine. */
void coordinator_destroy(struct coordinator *c);

/* Handles one event, waiting until `deadline_ns` at most. 1: go on; 0: it has ended. */
int coordinator_step(struct coordinator *c, uint64_t deadline_ns);
/* Steps until SIGTERM, SIGINT (both must be blocked, and SIGHUP; it reads them) or `gradpool stop`
 * has ended it. 0: in order, or it has left its jobs to the next start; a signal's number: that
 * second one has ended all at once; a negative errno: it could not go on, as was logged. */
int coordinator_run(struct coordinator *c);
/* As if that signal had come (K91, K92). */
void coordinator_signal(struct coordinator *c, int number);

/* "gradpool://127.0.0.1:7077", with the port in use. */
const char *coordinator_endpoint(const struct coordinator *c);

#endif
