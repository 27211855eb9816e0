/* Sites, and jobs of pools, as text and as JSON. */
#ifndef GRADPOOL_OPS_ANSWER_POOLS_H
#define GRADPOOL_OPS_ANSWER_POOLS_H

#include "svc/ops/json/json_put.h"
#include "svc/ops/snapshot/pools.h"

#include <stdio.h>

/* Prints one row for each job, then one row for each site. Returns 0, -ENOMEM or -EIO. */
int pools_print(const struct view_pools *pools, FILE *out);
/* Prints the site, the workers and the last decision of a job. */
void pools_print_job(const struct view_pool_job *job, FILE *out);
/* Add the members `sites` and `pool_jobs`. */
void pools_put(json_t *o, const struct view_pools *pools, int *error);
json_t *pools_job_json(const struct view_pool_job *job, int *error);

#endif
