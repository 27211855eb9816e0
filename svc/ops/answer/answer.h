/* Prints snapshots (svc/view) and replies, as text and as JSON. All functions return 0, -ENOMEM, or
 * -EIO if the output could not be written. */
#ifndef GRADPOOL_OPS_ANSWER_ANSWER_H
#define GRADPOOL_OPS_ANSWER_ANSWER_H

#include "svc/ops/snapshot/snapshot.h"
#include "svc/view/checks.h"

#include <stdio.h>

/* Print one JSON object and a newline. The members have the names of the view structs' fields,
 * including units. */
int ops_status_json(const struct view_status *status, FILE *out);
int ops_jobs_json(const struct view_jobs *jobs, FILE *out);
int ops_tenants_json(const struct view_tenants *tenants, FILE *out);

/* Print tables whose columns are as wide as their contents. */
int ops_status_table(const struct view_status *status, FILE *out);
int ops_jobs_table(const struct view_jobs *jobs, FILE *out);
int ops_tenants_table(const struct view_tenants *tenants, FILE *out);
/* Prints one job with its workers and tables of keyed rows. */
int ops_job_table(const struct view_job *job, FILE *out);
/* Prints a sentence for each job of a pool. */
int ops_pool_jobs_text(const struct view_pools *pools, FILE *out);
/* Print the tables of keyed rows of all jobs. */
int ops_tables_table(const struct view_jobs *jobs, FILE *out);
int ops_tables_json(const struct view_jobs *jobs, FILE *out);

/* Prints the present state of the service: cores, lanes with the jobs' shares, jobs. */
int ops_top_text(const struct snapshot *s, FILE *out);

/* Print why each task of a job is on its lane. */
int ops_explain_text(const Gradpool__Wire__ExplainReply *reply, FILE *out);
int ops_explain_json(const Gradpool__Wire__ExplainReply *reply, FILE *out);

/* Print the lanes on which a job would be placed, and the predicted losses of this job and of other
 * jobs. */
int ops_plan_text(const Gradpool__Wire__PlanReply *plan, FILE *out);
int ops_plan_json(const Gradpool__Wire__PlanReply *plan, FILE *out);

/* Print the results of `gradpool doctor`, with advice. */
int ops_checks_text(const struct view_checks *checks, FILE *out);
int ops_checks_json(const struct view_checks *checks, FILE *out);

#endif
