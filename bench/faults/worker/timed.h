/* A call of a worker held against its own deadline, and against what it may say when it fails. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_TIMED_H
#define GRADPOOL_BENCH_FAULTS_WORKER_TIMED_H

#include "bench/faults/worker/victim.h"

struct call {
    struct victim_board *board;
    const char *name;
    uint64_t began_ns, patience_ns;
    uint32_t stops;
};

/* From here on it may take that long, and some. */
struct call call_begin(struct victim_board *board, const char *name, uint64_t deadline_ns);
/* It has returned by then. One that was too late is a hang, unless its worker was stopped
 * meanwhile. */
void call_time(const struct call *call, uint64_t ended_ns);
/* The same of one that has just returned. Returns `code`. */
int call_end(const struct call *call, int code);
/* Of an error that does not end its worker, whose last one is judged elsewhere: one that names
 * nobody is counted. */
void call_judge(struct victim_board *board, const char *name, int code, const char *text);
/* Whoever is named may be looked for: a rank, a process, a connection of somebody. */
bool call_names_a_cause(const char *text);

#endif
