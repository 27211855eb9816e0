/* The stage of a job, as text and as JSON. */
#ifndef GRADPOOL_OPS_ANSWER_STAGE_H
#define GRADPOOL_OPS_ANSWER_STAGE_H

#include "svc/ops/json/json_put.h"
#include "svc/view/view.h"

#include <stdio.h>

/* Prints one line about the stage. Returns 0 or -ENOMEM. */
int stage_print(const struct view_stage *stage, FILE *out);
json_t *stage_json(const struct view_stage *stage, int *error);

#endif
