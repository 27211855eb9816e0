/* The processes of one system for one number of workers, and the requests to them (protocol:
 * seat.h). One thread; every wait has a deadline. */
#ifndef GRADPOOL_BENCH_CREW_H
#define GRADPOOL_BENCH_CREW_H

#include "bench/lib/own_service.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CREW_WORKERS_MAX 64
#define CREW_SEATS_MAX (CREW_WORKERS_MAX + 1) /* workers, and a server of the system */

struct crew;

struct system {
    const char *name, *transport;
    bool uses_service;    /* its server is the gradpool service */
    bool has_server_seat; /* its server is a process of the crew */
    /* Results replace the gradients. After r rounds sums have grown by a factor of workers^(r-1),
     * which stays exact for powers of two until the exponent overflows. */
    bool is_in_place;
    bool takes_groups; /* has a way to push many tensors at once */
    /* Starts the processes and records each with crew_note(). -ENOENT: the system is not installed;
     * the reason is on standard error. */
    int (*start)(struct crew *crew);
};

struct crew {
    const struct system *system;
    const struct service *service; /* for systems that use the service */
    uint32_t workers, seats;
    char address[64]; /* address that seats connect to */
    char job[64];
    char folder[PATH_MAX]; /* for systems that need a folder; removed at the end */
    int listen_fd;
    pid_t children[CREW_SEATS_MAX];
    size_t children_count;
    FILE *in[CREW_SEATS_MAX]; /* by rank; the server of the system is last */
    char *line;               /* last line from a seat */
    size_t line_bytes;
    uint32_t next_round;
    bool is_up;
};

/* One run of rounds without a pause. */
struct segment {
    uint32_t rounds;
    const uint32_t *pause_us;              /* per rank, before each round; NULL: none */
    uint64_t worker_cpu_ns, server_cpu_ns; /* results, like the following members */
    uint64_t elapsed_ns;                   /* elapsed time of the slowest worker */
    uint64_t wrong;
    uint64_t *round_ns; /* times of workers * rounds rounds */
};

/* Starts the processes and returns at once; crew_await() waits until all have connected. */
int crew_start(struct crew *crew, const struct system *system, const struct service *service,
               uint32_t workers);
int crew_await(struct crew *crew);
/* `bytes`: of all tensors of a round together. */
int crew_resize(struct crew *crew, uint64_t bytes, uint32_t tensors);
int crew_run(struct crew *crew, struct segment *segment);
/* Ends all processes. Allowed for a crew that did not start. */
void crew_end(struct crew *crew);

void crew_note(struct crew *crew, pid_t child);
/* Returns the largest number of rounds of one run. */
uint32_t crew_rounds_max(const struct crew *crew);
/* CPU time of the workers so far, by the kernel's clock. */
uint64_t crew_children_cpu_ns(const struct crew *crew);

#endif
