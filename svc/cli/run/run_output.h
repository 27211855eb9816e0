/* Output of workers, forwarded with the rank before each line. */
#ifndef GRADPOOL_CLI_RUN_RUN_OUTPUT_H
#define GRADPOOL_CLI_RUN_RUN_OUTPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One terminal, file or pipe, to which standard output, standard error or both lead. */
struct run_screen {
    struct run_output *last; /* worker whose text was written last; NULL: none */
};

struct run_output {
    int fd; /* pipe from the worker; -1: ended */
    FILE *to;
    struct run_screen *screen;
    uint32_t rank;
    char *text; /* text that is not shown yet */
    size_t have, room;
    uint64_t due_ns; /* when an unfinished line is shown; UINT64_MAX: never */
    /* last byte shown; '
     * ' at first */
    char before;
};

void run_output_init(struct run_output *o, int fd, FILE *to, struct run_screen *screen,
                     uint32_t rank);
/* Call when the pipe is readable, or has ended. */
void run_output_read(struct run_output *o);
/* Shows an unfinished line whose time has come. */
void run_output_hurry(struct run_output *o, uint64_t now_ns);
/* Shows the rest and closes the pipe; may be called again. */
void run_output_end(struct run_output *o);
/* Ends an unfinished line before other text is written to the same screen. */
void run_screen_break(struct run_screen *screen, FILE *to);

#endif
