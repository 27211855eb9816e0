/* A model's tensors from a CSV file. Its heading has `name` and `elements`, in any order, and
 * perhaps `dtype` (default f32); other columns are ignored. */
#ifndef GRADPOOL_CLI_PLAN_PLAN_FILE_H
#define GRADPOOL_CLI_PLAN_PLAN_FILE_H

#include "svc/base/err.h"
#include "svc/channel/channel.h"

/* Fills the request's tensors, to be freed with plan_file_free(). An error's text names the
 * line. */
int plan_file_read(const char *path, Gradpool__Wire__PlanRequest *request, struct err *err);
void plan_file_free(Gradpool__Wire__PlanRequest *request);

#endif
