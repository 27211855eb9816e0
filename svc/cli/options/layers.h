/* The four sources of an option's value: default, configuration file, environment and command line.
 * A later source takes precedence over an earlier one. The source of each value in force is
 * recorded. */
#ifndef GRADPOOL_CLI_OPTIONS_LAYERS_H
#define GRADPOOL_CLI_OPTIONS_LAYERS_H

#include "svc/cli/options/config.h"
#include "svc/cli/options/knob.h"

#include <limits.h>

struct layers {
    const struct knob_command *command;
    void *options;
    /* values from the command line, at the option's index; "1" for a flag */
    const char *typed[KNOBS_MAX];
    /* configuration file that is read if it exists and the command line names no other */
    const char *preset_file;
    const char *file;                     /* path of the file that was read; NULL: none */
    struct config_value own[KNOBS_MAX];   /* values in force */
    struct config_value other[KNOBS_MAX]; /* values of the other command's section */
    char found_preset[PATH_MAX];
};

/* Fills the options from all sources. Returns 0, or a negative errno with a text that names the
 * source. */
int layers_settle(struct layers *layers, struct err *err);

/* Prints the values in force as a configuration file, with their sources as comments. A default is
 * printed as a comment, because an explicit value may have further effects. */
void layers_print(const struct layers *layers, FILE *out);

/* Appends where options were set, such as "; --cores is set by FILE:7". An option is included if
 * the file or a variable has set it, and `text` contains its name (--cores) or its value in quotes.
 * Returns `buffer`. */
const char *layers_explain(const struct layers *layers, const char *text, char *buffer,
                           size_t buffer_bytes);

#endif
