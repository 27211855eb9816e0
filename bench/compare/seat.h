/* A seat: a process of a crew. The conductor (crew.h) controls it over a socket, in lines of text:
 *
 *   -> seat RANK                  rank of this process
 *   <- size BYTES TENSORS         -> ok                     memory for equal tensors, one group
 *   <- run ROUNDS FIRST PAUSE_US  -> ready                  the gradient is in place
 *   <- go                         -> done CPU_NS ELAPSED_NS ROUND_NS...
 *   <- check                      -> wrong ELEMENTS         in the last round's result
 *   <- quit, or the end of the socket
 *
 * Between "go" and "done" the process only runs rounds; it reads clocks at the start and at the
 * end. */
#ifndef GRADPOOL_BENCH_SEAT_H
#define GRADPOOL_BENCH_SEAT_H

#include <stdint.h>

#define SEAT_ROUNDS_MAX 4000

struct seat {
    const char *address; /* name of the conductor's abstract socket, without the leading zero */
    /* rank of a worker; the system's server has the number `workers`, and no gradient (NULL) */
    uint32_t rank;
    uint32_t workers;
};

/* Functions of the system. Each returns 0, or a negative errno with a text on standard error. */
struct seat_work {
    int (*resize)(void *context, uint64_t bytes, uint32_t tensors, float **ret_gradient,
                  float **ret_result);
    int (*round)(void *context);
    /* called after the clocks were read, to end the run; may be NULL */
    int (*settle)(void *context);
};

/* Executes the conductor's requests. Returns after "quit" or at the end of the socket. */
int seat_run(const struct seat *seat, const struct seat_work *work, void *context);

#endif
