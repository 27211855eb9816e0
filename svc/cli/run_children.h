/* Processes of one program side by side: their output, their ends. */
#ifndef GRADPOOL_CLI_RUN_CHILDREN_H
#define GRADPOOL_CLI_RUN_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

struct run_plan {
    char **program;        /* as execvp() wants it */
    uint32_t first, count; /* ranks */
    bool is_plain;         /* lines without the rank before them */
    /* In the child, before the program: what is different for this one. */
    void (*prepare)(const struct run_plan *plan, uint32_t index);
    const void *context;
};

/* Runs all until they have ended. When one fails, or a signal asks for the end, the others get
 * SIGTERM and, 5 s later, SIGKILL. Returns the exit code of the first that failed (128 and the
 * signal that ended it), or 0. */
int run_children(const struct run_plan *plan);

#endif
