/* Parses the command line of a subcommand according to its table of options. */
#ifndef GRADPOOL_CLI_OPTIONS_KNOBS_H
#define GRADPOOL_CLI_OPTIONS_KNOBS_H

#include "svc/cli/options/knob.h"

/* Fills `options` from all sources. Exits with 2 after a mistake, and with 0 after --help and
 * --print-config. */
void knobs_parse(const struct knob_command *command, int argc, char **argv, void *options);
/* Prints a mistake in the command line, and the command that prints the help. Returns CLI_USAGE. */
int knobs_mistake(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
