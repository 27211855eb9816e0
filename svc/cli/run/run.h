/* Option table of `run`. */
#ifndef GRADPOOL_CLI_RUN_RUN_H
#define GRADPOOL_CLI_RUN_RUN_H

#include "svc/cli/options/knobs.h"

extern const struct knob run_knobs[];

#endif
