/* A model's tensors from a file: CSV with a heading that has `name` and `elements`, in any order,
 * perhaps `dtype` (f32 where it is missing), and columns that are passed over. */
#ifndef GRADPOOL_CLI_PLAN_PLAN_FILE_H
#define GRADPOOL_CLI_PLAN_PLAN_FILE_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"

/* Fills the request's tensors, for plan_file_free(). On a mistake the text names the line. */
int plan_file_read(const char *path, Gradpool__Wire__PlanRequest *request, struct err *err);
void plan_file_free(Gradpool__Wire__PlanRequest *request);

#endif
