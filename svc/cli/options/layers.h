/* The four sources of an option's value, each over the one before: default, configuration file,
 * environment, command line. Remembers where each value in force is from. */
#ifndef GRADPOOL_CLI_OPTIONS_LAYERS_H
#define GRADPOOL_CLI_OPTIONS_LAYERS_H

#include "svc/cli/options/config.h"
#include "svc/cli/options/knob.h"

#include <limits.h>

struct layers {
    const struct knob_command *command;
    void *options;
    const char *typed[KNOBS_MAX];         /* of the command line, by index; "1" for a flag */
    const char *preset_file;              /* read if the command line names none and it is there */
    const char *file;                     /* the file that was read; NULL: none */
    struct config_value own[KNOBS_MAX];   /* values in force */
    struct config_value other[KNOBS_MAX]; /* values of the other command's section */
    char found_preset[PATH_MAX];
};

/* Fills the options from all sources. A negative errno with a text that names the source. */
int layers_settle(struct layers *layers, struct err *err);

/* Prints the values in force as a configuration file; comments name their origins. Defaults are
 * comments, since an explicit value can mean more than the same default. */
void layers_print(const struct layers *layers, FILE *out);

/* "; --cores is set by FILE:7" for each option that the file or a variable has set, if `text` has
 * its name (--cores) or its value in quotes; else "". Returns `buffer`. */
const char *layers_explain(const struct layers *layers, const char *text, char *buffer,
                           size_t buffer_bytes);

#endif
