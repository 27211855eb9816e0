/* The commands that read the configuration file, and the page about their options. */
#ifndef GRADPOOL_CLI_OPTIONS_OPTIONS_H
#define GRADPOOL_CLI_OPTIONS_OPTIONS_H

#include "svc/cli/options/knob.h"

#include <stdio.h>

extern const struct knob serve_knobs[], aggregator_knobs[];
extern const struct knob_command serve_command, aggregator_command;

/* Prints svc/OPTIONS.md. */
void options_page(FILE *out);

#endif
