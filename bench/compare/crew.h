/* A crew: the processes of one system with one number of workers, and the requests to them
 * (protocol: seat.h). Used by one thread; every wait has a deadline. */
#ifndef GRADPOOL_BENCH_CREW_H
#define GRADPOOL_BENCH_CREW_H

#include "bench/lib/own_service.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CREW_WORKERS_MAX 64
/* maximum number of processes of a crew: the workers, and a server of the system */
#define CREW_SEATS_MAX (CREW_WORKERS_MAX + 1)

struct crew;

struct system {
    const char *name, *transport;
    bool uses_service;    /* whether the system's server is the gradpool service */
    bool has_server_seat; /* whether the system's server is a process of the crew */
    /* Whether results replace the gradients in memory. In this case a sum after r rounds has grown
     * by the factor workers^(r-1), which for powers of two is exact until the exponent
     * overflows. */
    bool is_in_place;
    bool takes_groups; /* whether the system can push many tensors in one call */
    /* Starts the processes and records each with crew_note(). -ENOENT: the system is not installed,
     * with a text on standard error. */
    int (*start)(struct crew *crew);
};

struct crew {
    const struct system *system;
    const struct service *service; /* the service, for systems that use it */
    uint32_t workers, seats;
    char address[64]; /* address of this process, to which the processes of the crew connect */
    char job[64];
    char folder[PATH_MAX]; /* temporary folder for systems that need one */
    int listen_fd;
    pid_t children[CREW_SEATS_MAX];
    size_t children_count;
    /* streams from the processes, indexed by rank; the last one is the stream of the system's
     * server */
    FILE *in[CREW_SEATS_MAX];
    char *line; /* last line that a process of the crew has sent */
    size_t line_bytes;
    uint32_t next_round;
    bool is_up;
};

/* Rounds that run one after the other, and the times of these rounds. */
struct segment {
    uint32_t rounds;
    /* pause of each rank before each round, in us; NULL: no pauses */
    const uint32_t *pause_us;
    uint64_t worker_cpu_ns, server_cpu_ns; /* this field and all fields below are results */
    uint64_t elapsed_ns;                   /* elapsed time of the slowest worker */
    uint64_t wrong;
    uint64_t *round_ns; /* times of all rounds of all workers: workers * rounds values */
};

/* Starts the processes and returns at once. crew_await() waits until all processes have
 * connected. */
int crew_start(struct crew *crew, const struct system *system, const struct service *service,
               uint32_t workers);
int crew_await(struct crew *crew);
/* Sets the tensors of a round in all processes. `bytes`: sum over all tensors. */
int crew_resize(struct crew *crew, uint64_t bytes, uint32_t tensors);
int crew_run(struct crew *crew, struct segment *segment);
/* Ends all processes. May be called for a crew that did not start. */
void crew_end(struct crew *crew);

void crew_note(struct crew *crew, pid_t child);
/* Returns the maximum number of rounds of a segment. */
uint32_t crew_rounds_max(const struct crew *crew);
/* Returns the CPU time of all workers, by the kernel's clock. */
uint64_t crew_children_cpu_ns(const struct crew *crew);

#endif
