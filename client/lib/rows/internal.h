/* Functions that the files of client/lib/rows share. */
#ifndef GRADPOOL_CLIENT_LIB_ROWS_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_ROWS_INTERNAL_H

#include "client/lib/job/job_tables.h"

/* Returns 0, or the error of a failed job or table with its text. Called with the job's lock
 * held. */
int rows_check(const struct gp_table *t);

#endif
