/* Processes of one program side by side: their output, their ends. */
#ifndef GRADPOOL_CLI_RUN_RUN_CHILDREN_H
#define GRADPOOL_CLI_RUN_RUN_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

struct run_plan {
    char **program;        /* as execvp() wants it */
    uint32_t first, count; /* ranks */
    bool is_plain;         /* they print to where we do */
    /* In the child, before the program: what is different for this one. */
    void (*prepare)(const struct run_plan *plan, uint32_t index);
    const void *context;
};

/* Runs all until they have ended. When one fails the others get SIGTERM and, 5 s later, SIGKILL. A
 * signal that asks for the end is passed on, and the same begins 10 s later; each that comes
 * meanwhile is a step further. Returns 128 and the first signal, or the exit code of the first that
 * failed (128 and the signal that ended it), or 0. */
int run_children(const struct run_plan *plan);

#endif
