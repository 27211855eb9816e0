/* Runs several processes of one program: start, output, end. */
#ifndef GRADPOOL_CLI_RUN_RUN_CHILDREN_H
#define GRADPOOL_CLI_RUN_RUN_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

struct run_plan {
    char **program;        /* arguments for execvp() */
    uint32_t first, count; /* first rank, and number of ranks */
    bool is_plain;         /* the processes write to our own output, without prefixes */
    /* Called in the child before the program starts, to set what differs between the processes. */
    void (*prepare)(const struct run_plan *plan, uint32_t index);
    const void *context;
};

/* Runs all processes until they have ended. After a failure the others get SIGTERM and, 5 s later,
 * SIGKILL. A signal that requests the end is forwarded, and the same steps begin 10 s later; a
 * further signal goes to the next step. Returns 128 plus the first signal; else the exit code of
 * the first failed process (128 plus the signal that ended it); else 0. */
int run_children(const struct run_plan *plan);

#endif
