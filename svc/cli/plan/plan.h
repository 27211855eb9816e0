/* Option table of `plan`. */
#ifndef GRADPOOL_CLI_PLAN_PLAN_H
#define GRADPOOL_CLI_PLAN_PLAN_H

#include "svc/cli/options/knobs.h"

extern const struct knob plan_knobs[];

#endif
