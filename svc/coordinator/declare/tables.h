/* Declares of tables. RULES.md: K3. */
#ifndef GRADPOOL_COORDINATOR_DECLARE_TABLES_H
#define GRADPOOL_COORDINATOR_DECLARE_TABLES_H

#include "svc/coordinator/job/table.h"

/* Handles a declare that names tables and no tensors. The peer has joined a job that has not
 * failed. Returns 0 or a negative errno. After -EINPROGRESS the job waits for lanes, `err` has the
 * reason, and the caller handles the request again. Every other error was sent to the peer. */
int tables_declare(struct peer *p, const envelope *request, struct err *err);
/* Answers open declares of tables of the job. A declare is answered if all its tables are ready, or
 * if one of its tables has failed. */
void tables_check_waits(struct job *job);

#endif
