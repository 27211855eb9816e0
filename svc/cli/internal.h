/* Option tables of the commands in this folder. */
#ifndef GRADPOOL_CLI_INTERNAL_H
#define GRADPOOL_CLI_INTERNAL_H

#include "svc/cli/options/knobs.h"

extern const struct knob tenant_knobs[], top_knobs[], report_knobs[], move_knobs[], drain_knobs[],
    snapshot_knobs[], timeline_knobs[], stop_knobs[];

struct operator_options;
/* Shows the tables of all jobs, or of one job. Returns the exit code. */
int cli_tables_list(const struct operator_options *options);

#endif
