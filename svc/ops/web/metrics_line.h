/* Lines of metrics, for the files that print them. */
#ifndef GRADPOOL_OPS_WEB_METRICS_LINE_H
#define GRADPOOL_OPS_WEB_METRICS_LINE_H

#include "svc/view/view.h"

#include <stdio.h>

/* Prints help and type of a metric. `name` is the name of the metric without "gradpool_". */
void metrics_family(FILE *out, const char *name, const char *type, const char *help);
/* Prints one label. */
void metrics_label(FILE *out, const char *name, const char *value);
/* Prints the labels `tenant` and `job`. */
void metrics_job_labels(FILE *out, const struct view_job *job);

#endif
