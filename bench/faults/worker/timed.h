/* Measures a worker's call against its deadline, and checks that its error names a cause. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_TIMED_H
#define GRADPOOL_BENCH_FAULTS_WORKER_TIMED_H

#include "bench/faults/worker/victim.h"

struct call {
    struct victim_board *board;
    const char *name;
    uint64_t began_ns, patience_ns;
    uint32_t stops;
};

/* Begins a call that may last for `deadline_ns` and 2 s more. */
struct call call_begin(struct victim_board *board, const char *name, uint64_t deadline_ns);
/* Judges the duration of the call. A call that lasted too long counts as a hang, unless its worker
 * was stopped during the call. */
void call_time(const struct call *call, uint64_t ended_ns);
/* Like call_time(), for a call that ends now. Returns `code`. */
int call_end(const struct call *call, int code);
/* Counts an error that does not end the worker and names no cause. company.c judges the error that
 * ended a worker. */
void call_judge(struct victim_board *board, const char *name, int code, const char *text);
/* Returns whether the text names a rank, a process or the peer of a connection. */
bool call_names_a_cause(const char *text);

#endif
