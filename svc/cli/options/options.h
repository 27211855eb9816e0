/* The tables of options of `serve` and `aggregator`. */
#ifndef GRADPOOL_CLI_OPTIONS_OPTIONS_H
#define GRADPOOL_CLI_OPTIONS_OPTIONS_H

#include "svc/cli/options/knobs.h"

extern const struct knob serve_knobs[], aggregator_knobs[];

#endif
