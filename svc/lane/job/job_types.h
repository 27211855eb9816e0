/* Types of a job: its tenant, the states of a worker, and ends of connections. */
#ifndef GRADPOOL_LANE_JOB_JOB_TYPES_H
#define GRADPOOL_LANE_JOB_JOB_TYPES_H

#include "svc/fabric/fabric.h"
#include "svc/fabric/group.h"
#include "svc/lane/turn/line.h"
#include "svc/wire/record.h"

#include <stdbool.h>
#include <stdint.h>

#define LANE_NAME_BYTES 128

/* A tenant on a lane. The lane's time is divided first among tenants, then among each tenant's jobs
 * (A77). */
struct lane_tenant {
    struct list link; /* node in lane.tenants */
    char name[LANE_NAME_BYTES];
    size_t jobs_count;
    struct line_entry turn;    /* node in lane.running while `running` is not empty */
    struct line running;       /* jobs of the tenant that can use the core now */
    struct fabric_group group; /* all connections of the tenant */
};

struct lane;
struct lane_job;
enum worker_state {
    WORKER_ABSENT,
    WORKER_OPEN,
    WORKER_LEFT,
    WORKER_LOST,
    WORKER_AWAY, /* the connection has ended; the worker may connect again (A70) */
};
struct worker;

/* Ends of a worker's connections within a period (A70). */
struct breaks {
    uint64_t since_ns; /* time of the first connection end in the period */
    uint32_t count;
    int error;         /* error with which the last connection has ended */
    uint64_t until_ns; /* deadline for a new connection, in state WORKER_AWAY */
};

/* Sample of the gradients of a job on a lane (state/sample.h): the sums over all sampled blocks in
 * one round, and the record that contains these sums. `counts` covers all rounds of the job that
 * this lane has led. */
struct sampling {
    uint32_t gradients; /* maximum number of gradients of one rank in a round of the job (A125) */
    uint32_t pieces;    /* number of pieces with a sample */
    uint32_t blocks;    /* sampled blocks of all these pieces */
    uint32_t shift;     /* one block in 2^shift is in the sample */
    uint32_t done;      /* number of pieces in the sums below */
    uint64_t round;     /* round of the job to which the sums below belong */
    /* number of gradients of each piece in `round`; 0: the pieces have different numbers */
    uint32_t inputs;
    double squares, mean, product;
    struct record_measure told;
    struct worker *told_to; /* rank to which `told` is to be sent; NULL: none */
    struct counts *counts;  /* piece/counts.h; NULL: this lane has led no rounds of the job */
};

#endif
