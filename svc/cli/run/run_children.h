/* Runs several processes of one program: starts them, forwards their output, ends them. */
#ifndef GRADPOOL_CLI_RUN_RUN_CHILDREN_H
#define GRADPOOL_CLI_RUN_RUN_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

struct run_plan {
    char **program;        /* arguments for execvp() */
    uint32_t first, count; /* first rank, and number of ranks */
    /* the processes write directly to this process's standard output and error, without prefixes */
    bool is_plain;
    /* Sets values that differ between the processes. Called in the child before the program
     * starts. */
    void (*prepare)(const struct run_plan *plan, uint32_t index);
    const void *context;
};

/* Runs all processes until they have ended. After one has failed, SIGTERM is sent to the others,
 * and SIGKILL 5 s later. A signal to end is forwarded; 10 s later SIGTERM and SIGKILL follow in the
 * same way. Each further signal starts the next of these steps at once. Returns 128 plus the number
 * of the first signal, if there was one. Otherwise returns the exit code of the first failed
 * process (128 plus the number of the signal that ended it), or 0. */
int run_children(const struct run_plan *plan);

#endif
