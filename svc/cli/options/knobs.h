/* Options as data: one table a subcommand. --some-thing of `serve` and `aggregator` is also
 * GRADPOOL_SOME_THING, and so are the few options of others that say so; the command line wins. */
#ifndef GRADPOOL_CLI_OPTIONS_KNOBS_H
#define GRADPOOL_CLI_OPTIONS_KNOBS_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KNOBS_MAX 80

/* Whether an option is read from the environment. A variable is inherited by commands that it was
 * not meant for: what destroys, grants or is for once is typed (I1). */
enum knob_source {
    KNOB_AS_COMMAND, /* as knob_command.reads_variables has it */
    KNOB_VARIABLE,   /* always */
    KNOB_TYPED,      /* never */
};

struct knob {
    const char *name;     /* "state-dir"; NULL ends the table */
    const char *argument; /* "DIR"; NULL: a flag */
    const char *help;
    enum knob_source source;
};

struct knob_command {
    const char *name;           /* "gradpool serve" */
    const char *operands;       /* "[JOB]"; NULL: none */
    const char *before, *after; /* what it does; examples, after the options */
    const struct knob *knobs;
    bool reads_variables; /* of knobs that do not say otherwise */
    /* `index` in knobs; `value` NULL for a flag. A negative errno with a text that says what was
     * expected. */
    int (*set)(void *options, int index, const char *value, struct err *err);
    /* NULL: no operands. */
    int (*operand)(void *options, const char *value, struct err *err);
    /* Not NULL: the first operand and all behind it, NULL last, are somebody else's. */
    void (*program)(void *options, char **program);
};

/* Exits with 2 on a mistake, with 0 after --help. */
void knobs_parse(const struct knob_command *command, int argc, char **argv, void *options);
/* Says what is wrong with a command line, and where its help is. Returns CLI_USAGE. */
int knobs_mistake(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A whole number within bounds; the text names both. */
int knobs_number(const char *value, unsigned long long least, unsigned long long most,
                 unsigned long long *ret_value, struct err *err);
/* "5%", "2.5": more than 0 and less than 100 percent, in parts per million. */
int knobs_percent(const char *value, uint32_t *ret_ppm, struct err *err);
/* "2", "1.5": in milliseconds. */
int knobs_seconds(const char *value, uint64_t most_s, uint64_t *ret_ms, struct err *err);
/* "GRADPOOL_STATE_DIR" of "state-dir". */
const char *knobs_variable(const char *name, char *buffer, size_t buffer_bytes);

#endif
