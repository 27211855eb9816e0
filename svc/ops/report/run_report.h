/* Report about a benchmark's run, as JSON and as a page that contains this JSON. */
#ifndef GRADPOOL_OPS_REPORT_RUN_REPORT_H
#define GRADPOOL_OPS_REPORT_RUN_REPORT_H

#include "svc/view/run.h"

#include <stdio.h>

/* Both functions print to `out`. They return 0, -ENOMEM or -EIO. */
int run_report_json(const struct view_run *run, FILE *out);
int run_report_page(const struct view_run *run, FILE *out);

#endif
