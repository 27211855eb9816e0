/* Options as data: each subcommand has a table of knobs. An option --some-thing of `serve` and
 * `aggregator` is also the variable GRADPOOL_SOME_THING and a key of the configuration file. Some
 * options of other subcommands also have a variable. The command line takes precedence over the
 * variable, and the variable over the file. */
#ifndef GRADPOOL_CLI_OPTIONS_KNOB_H
#define GRADPOOL_CLI_OPTIONS_KNOB_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KNOBS_MAX 80

/* Sources of a value in addition to the command line. Child processes inherit variables, even if a
 * variable is not intended for them. So an option that destroys something, needs privileges or
 * applies once has no variable (I1). */
enum knob_source {
    KNOB_AS_COMMAND, /* the file, and the variable if knob_command.reads_variables */
    KNOB_VARIABLE,   /* the file, and the variable in every command */
    KNOB_TYPED,      /* an option of command line and file, without a variable */
    KNOB_LINE,       /* an option of the command line only */
    KNOB_SECRET,     /* the variable, never the file; the value is never printed */
};

struct knob;
/* Parses a text into a field of an options struct. Returns 0, or a negative errno with a text that
 * says what is expected; the field is then unchanged. `value` outlives the options. */
typedef int (*knob_read_fn)(void *field, const struct knob *knob, const char *value,
                            struct err *err);

struct knob {
    const char *name; /* such as "state-dir"; the table ends with NULL */
    /* Name of the argument, such as "DIR". "a|b|c" lists all allowed values. NULL: a flag. */
    const char *argument;
    const char *help; /* one line of help; backticks enclose code */
    enum knob_source source;
    int section; /* index in knob_command.sections */
    /* The default. `preset`: as a user would type it; NULL: the field's value before parsing.
     * `shown`: as a page shows it; NULL: `preset` with its `unit`. `find_preset` writes a
     * default that depends on this host to a buffer. */
    const char *preset, *shown, *unit;
    const char *(*find_preset)(char *buffer, size_t buffer_bytes);
    knob_read_fn read;    /* NULL: knob_command.set stores the value */
    uint64_t least, most; /* range of a number; in seconds for seconds */
    /* offset and size of the field that `read` fills */
    size_t offset, bytes;
    bool may_repeat; /* an option without variable: each use on the command line is stored */
    bool is_handed;  /* `serve` passes the value in section [aggregator] to its local aggregators */
};
#define KNOB_FIELD(type, field) .offset = offsetof(type, field), .bytes = sizeof(((type *)0)->field)

/* A heading in the help and on the page of options. */
struct knob_section {
    const char *title;  /* NULL: the only section of the command */
    const char *intro;  /* text below the heading on the page; NULL: none */
    const char *column; /* heading of the column with the help; NULL: "meaning" */
    const char *prefix; /* text before each help text, but not on the page; NULL: none */
};

struct knob_command {
    const char *name;           /* such as "gradpool serve" */
    const char *operands;       /* such as "[JOB]"; NULL: none */
    const char *before, *after; /* description before the options, examples after the options */
    const struct knob *knobs;
    bool reads_variables; /* for knobs with the source KNOB_AS_COMMAND */
    /* Stores a value. `index`: index in `knobs`. `value`: NULL for a flag. Returns 0, or a negative
     * errno with a text that says what is expected. */
    int (*set)(void *options, int index, const char *value, struct err *err);
    /* Stores an operand. NULL: the command has no operands. */
    int (*operand)(void *options, const char *value, struct err *err);
    /* Receives the first operand and all arguments after it: the program to start, and its
     * arguments. The list ends with NULL. NULL: the command starts no program. */
    void (*program)(void *options, char **program);
    /* Checks all values together after the last one was stored. NULL: no check. */
    int (*check)(void *options, struct err *err);
    /* The following fields are only for commands that read the configuration file. */
    /* section of the file, such as "serve"; NULL: the command reads no file */
    const char *part;
    const struct knob_command *other; /* the other command that has a section in the file */
    const struct knob_section *sections;
    int sections_count;
    size_t options_bytes; /* size of the options struct */
};

/* Types of values. */
int knob_read_text(void *field, const struct knob *knob, const char *value, struct err *err);
int knob_read_flag(void *field, const struct knob *knob, const char *value, struct err *err);
/* Accepts one of the words in knob->argument, such as "a|b|c". */
int knob_read_choice(void *field, const struct knob *knob, const char *value, struct err *err);
/* Accepts an integer in the knob's range, and stores 2, 4 or 8 bytes. */
int knob_read_number(void *field, const struct knob *knob, const char *value, struct err *err);
/* Accepts seconds with up to three decimals, and stores milliseconds. */
int knob_read_seconds(void *field, const struct knob *knob, const char *value, struct err *err);
int knob_read_percent(void *field, const struct knob *knob, const char *value, struct err *err);

/* Stores the value of a knob. The value of a flag is "1" or "0". Returns 0 or a negative errno. */
int knob_store(const struct knob_command *command, int index, const char *value, void *options,
               struct err *err);

/* Parses an integer within bounds. Returns 0 or -EINVAL; the text names both bounds. */
int knobs_number(const char *value, unsigned long long least, unsigned long long most,
                 unsigned long long *ret_value, struct err *err);
/* Parses a percentage such as "5%" or "2.5", more than 0 and less than 100, into millionths.
 * Returns 0 or -EINVAL. */
int knobs_percent(const char *value, uint32_t *ret_ppm, struct err *err);
/* Parses seconds such as "2" or "1.5" into milliseconds. Returns 0 or -EINVAL. */
int knobs_seconds(const char *value, uint64_t most_s, uint64_t *ret_ms, struct err *err);

/* Writes the name of an option's variable: "GRADPOOL_STATE_DIR" for "state-dir". Returns
 * `buffer`. */
const char *knobs_variable(const char *name, char *buffer, size_t buffer_bytes);
/* Returns whether the option has a variable in this command. */
bool knobs_has_variable(const struct knob_command *command, const struct knob *knob);
/* Returns the index of the knob with this name, or -1. */
int knobs_find(const struct knob *knobs, const char *name);
/* Appends the default as a page shows it, if there is one. */
void knobs_show_preset(const struct knob *knob, char *text, size_t text_bytes);
/* Removes the backticks, which are for pages only. */
void knobs_unmark(char *text);

#endif
