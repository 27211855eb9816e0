/* Reads a model's tensors from a CSV file. The heading has the columns `name` and `elements` in any
 * order, and optionally `dtype` (default f32). Other columns are ignored. */
#ifndef GRADPOOL_CLI_PLAN_PLAN_FILE_H
#define GRADPOOL_CLI_PLAN_PLAN_FILE_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"

/* Fills in the tensors of the request, which the caller frees with plan_file_free(). Returns 0, or
 * a negative errno with a text that names the line. */
int plan_file_read(const char *path, Gradpool__Wire__PlanRequest *request, struct err *err);
void plan_file_free(Gradpool__Wire__PlanRequest *request);

#endif
