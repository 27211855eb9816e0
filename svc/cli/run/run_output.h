/* What workers print, passed on with their rank before each line. */
#ifndef GRADPOOL_CLI_RUN_RUN_OUTPUT_H
#define GRADPOOL_CLI_RUN_RUN_OUTPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One terminal, file or pipe, whether standard output leads there, standard error or both. */
struct run_screen {
    struct run_output *last; /* whose text stands last there; NULL: nobody's */
};

struct run_output {
    int fd; /* a pipe; -1: ended */
    FILE *to;
    struct run_screen *screen;
    uint32_t rank;
    char *text; /* that is not shown yet */
    size_t have, room;
    uint64_t due_ns; /* when it is shown although its line has no end; UINT64_MAX: never */
    char before;     /* the last byte that was shown; '\n' at first */
};

void run_output_init(struct run_output *o, int fd, FILE *to, struct run_screen *screen,
                     uint32_t rank);
/* The pipe is readable, or has ended. */
void run_output_read(struct run_output *o);
/* Shows what is due. */
void run_output_hurry(struct run_output *o, uint64_t now_ns);
/* Shows the rest and closes the pipe, if that has not been done. */
void run_output_end(struct run_output *o);
/* Ends the line that stands open, before another is written to the same screen. */
void run_screen_break(struct run_screen *screen, FILE *to);

#endif
