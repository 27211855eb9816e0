/* The four sources of the value of an option: default, configuration file, environment and command
 * line. Each has priority over those before it. Records the source of each value in force. */
#ifndef GRADPOOL_CLI_OPTIONS_LAYERS_H
#define GRADPOOL_CLI_OPTIONS_LAYERS_H

#include "svc/cli/options/config.h"
#include "svc/cli/options/knob.h"

#include <limits.h>

struct layers {
    const struct knob_command *command;
    void *options;
    /* values of the command line, by the option's index; "1" for a flag */
    const char *typed[KNOBS_MAX];
    /* configuration file that is read if it exists and the command line names none */
    const char *preset_file;
    const char *file;                     /* path of the file that was read; NULL: none */
    struct config_value own[KNOBS_MAX];   /* values in force */
    struct config_value other[KNOBS_MAX]; /* values of the section of the other command */
    char found_preset[PATH_MAX];
};

/* Fills the options from all sources. Returns a negative errno; the text of the error names the
 * source. */
int layers_settle(struct layers *layers, struct err *err);

/* Prints the values in force as a configuration file, with their sources as comments. A default is
 * printed as a comment, because an explicit value may have further effects. */
void layers_print(const struct layers *layers, FILE *out);

/* Appends "; --cores is set by FILE:7" for each option that the file or a variable has set, if
 * `text` contains the option's name (--cores) or its value in quotes. Writes "" for none. Returns
 * `buffer`. */
const char *layers_explain(const struct layers *layers, const char *text, char *buffer,
                           size_t buffer_bytes);

#endif
