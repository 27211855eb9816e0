/* Options of gradpool table. */
#ifndef GRADPOOL_CLI_TABLE_TABLE_H
#define GRADPOOL_CLI_TABLE_TABLE_H

#include "svc/cli/options/knobs.h"

extern const struct knob table_knobs[];

#endif
