/* Forwards the output of workers, with the rank before each line. */
#ifndef GRADPOOL_CLI_RUN_RUN_OUTPUT_H
#define GRADPOOL_CLI_RUN_RUN_OUTPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One destination (terminal, file or pipe) of standard output, standard error or both. */
struct run_screen {
    struct run_output *last; /* worker whose text was written last; NULL: none */
};

struct run_output {
    int fd; /* pipe from the worker; -1: closed */
    FILE *to;
    struct run_screen *screen;
    uint32_t rank;
    char *text; /* text that is not printed yet */
    size_t have, room;
    uint64_t due_ns; /* time at which an unfinished line is printed; UINT64_MAX: never */
    /* last printed byte; initially ' ' */
    char before;
};

void run_output_init(struct run_output *o, int fd, FILE *to, struct run_screen *screen,
                     uint32_t rank);
/* Reads from the pipe. Called when it is readable or its other end is closed. */
void run_output_read(struct run_output *o);
/* Prints an unfinished line that has waited half a second. */
void run_output_hurry(struct run_output *o, uint64_t now_ns);
/* Prints the remaining text and closes the pipe. May be called again. */
void run_output_end(struct run_output *o);
/* Ends an unfinished line before other text is written to the same destination. */
void run_screen_break(struct run_screen *screen, FILE *to);

#endif
