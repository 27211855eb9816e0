/* Runs several processes of one program: starts them, forwards their output, ends them. */
#ifndef GRADPOOL_CLI_RUN_RUN_CHILDREN_H
#define GRADPOOL_CLI_RUN_RUN_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

struct run_plan {
    char **program;        /* arguments for execvp() */
    uint32_t first, count; /* first rank, and number of ranks */
    /* the processes write to standard output and error of this process, without prefixes */
    bool is_plain;
    /* Sets what differs between the processes. Called in the child, before the program starts. */
    void (*prepare)(const struct run_plan *plan, uint32_t index);
    const void *context;
};

/* Runs all processes until they have ended. After a failure the others get SIGTERM, and SIGKILL 5 s
 * later. A signal that requests the end is forwarded; 10 s later the same two steps follow. Each
 * further signal goes to the next step. Returns 128 plus the first signal; without a signal the
 * exit code of the first failed process (128 plus the signal that ended it); else 0. */
int run_children(const struct run_plan *plan);

#endif
