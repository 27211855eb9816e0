/* The command line of a subcommand, from its table of options. */
#ifndef GRADPOOL_CLI_OPTIONS_KNOBS_H
#define GRADPOOL_CLI_OPTIONS_KNOBS_H

#include "svc/cli/options/knob.h"

/* Fills `options` from all sources. Exits with 2 on a mistake, with 0 after --help and
 * --print-config. */
void knobs_parse(const struct knob_command *command, int argc, char **argv, void *options);
/* Says what is wrong with a command line, and where its help is. Returns CLI_USAGE. */
int knobs_mistake(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
