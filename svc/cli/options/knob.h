/* Options as data: one table a subcommand. --some-thing of `serve` and `aggregator` is also
 * GRADPOOL_SOME_THING and a key of the configuration file, and some options of other subcommands
 * have a variable; the command line wins over the variable, the variable over the file. */
#ifndef GRADPOOL_CLI_OPTIONS_KNOB_H
#define GRADPOOL_CLI_OPTIONS_KNOB_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KNOBS_MAX 80

/* Sources of a value beside the command line. A variable is inherited by commands that it was not
 * meant for, so destructive, privileged and one-time options have none (I1). */
enum knob_source {
    KNOB_AS_COMMAND, /* a variable if knob_command.reads_variables; the file */
    KNOB_VARIABLE,   /* a variable always; the file */
    KNOB_TYPED,      /* no variable; the file */
    KNOB_LINE,       /* none: the command line alone */
    KNOB_SECRET,     /* a variable, never the file; the value is never printed */
};

struct knob;
/* Turns a text into a field of an options struct. A negative errno with a text that names the
 * expectation; the field is then as before. `value` outlives the options. */
typedef int (*knob_read_fn)(void *field, const struct knob *knob, const char *value,
                            struct err *err);

struct knob {
    const char *name;     /* "state-dir"; NULL ends the table */
    const char *argument; /* "DIR"; "a|b|c": all values; NULL: a flag */
    const char *help;     /* one line; code stands in backticks */
    enum knob_source source;
    int section; /* index in knob_command.sections */
    /* Default as it is typed (NULL: the field as it is before parsing), and as a page shows it
     * (NULL: `preset` with its unit). `find_preset` fills a buffer with a default of this host. */
    const char *preset, *shown, *unit;
    const char *(*find_preset)(char *buffer, size_t buffer_bytes);
    knob_read_fn read;    /* NULL: knob_command.set stores the value */
    uint64_t least, most; /* range of a number; of seconds in seconds */
    size_t offset, bytes; /* field of the options struct that `read` fills */
    bool is_handed;       /* serve hands the value of [aggregator] to its local aggregators */
};
#define KNOB_FIELD(type, field) .offset = offsetof(type, field), .bytes = sizeof(((type *)0)->field)

/* A heading of the help and of the options page. */
struct knob_section {
    const char *title;  /* NULL: the only section of its command */
    const char *intro;  /* text below the heading of the page; NULL: none */
    const char *column; /* heading of the help column; NULL: meaning */
    const char *prefix; /* before each text of the help, not of the page; NULL: none */
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
    /* All values together, after the last one was stored; NULL: nothing to check. */
    int (*check)(void *options, struct err *err);
    /* The rest is for commands that read the configuration file. */
    const char *part;                 /* section of the file: "serve"; NULL: reads no file */
    const struct knob_command *other; /* command of the other section */
    const struct knob_section *sections;
    int sections_count;
    size_t options_bytes; /* of the options struct */
};

/* Kinds of values. */
int knob_read_text(void *field, const struct knob *knob, const char *value, struct err *err);
int knob_read_flag(void *field, const struct knob *knob, const char *value, struct err *err);
/* One of the words of knob->argument, "a|b|c". */
int knob_read_choice(void *field, const struct knob *knob, const char *value, struct err *err);
/* A whole number in the knob's range, into 2, 4 or 8 bytes. */
int knob_read_number(void *field, const struct knob *knob, const char *value, struct err *err);
/* Seconds with up to three decimals, as milliseconds. */
int knob_read_seconds(void *field, const struct knob *knob, const char *value, struct err *err);
int knob_read_percent(void *field, const struct knob *knob, const char *value, struct err *err);

/* Stores the value of a knob; a flag has "1" or "0". */
int knob_store(const struct knob_command *command, int index, const char *value, void *options,
               struct err *err);

/* A whole number within bounds; the text names both. */
int knobs_number(const char *value, unsigned long long least, unsigned long long most,
                 unsigned long long *ret_value, struct err *err);
/* "5%", "2.5": more than 0 and less than 100 percent, in parts per million. */
int knobs_percent(const char *value, uint32_t *ret_ppm, struct err *err);
/* "2", "1.5": in milliseconds. */
int knobs_seconds(const char *value, uint64_t most_s, uint64_t *ret_ms, struct err *err);

/* "GRADPOOL_STATE_DIR" of "state-dir". */
const char *knobs_variable(const char *name, char *buffer, size_t buffer_bytes);
/* Whether the option is read from the environment. */
bool knobs_has_variable(const struct knob_command *command, const struct knob *knob);
/* Index of the knob with that name; -1: none. */
int knobs_find(const struct knob *knobs, const char *name);
/* Appends the default as a page shows it, or nothing. */
void knobs_show_preset(const struct knob *knob, char *text, size_t text_bytes);
/* Removes the backticks of a page. */
void knobs_unmark(char *text);

#endif
