/* Declares of tables. RULES.md: K3. */
#ifndef GRADPOOL_COORDINATOR_DECLARE_TABLES_H
#define GRADPOOL_COORDINATOR_DECLARE_TABLES_H

#include "svc/coordinator/job/table.h"

/* Handles a declare that names tables and no tensors. The peer has joined a job that has not
 * failed. Returns 0, or -EINPROGRESS if the job waits for lanes: `err` has the reason, and the
 * caller handles the request again. Every other error was sent to the peer. */
int tables_declare(struct peer *p, const envelope *request, struct err *err);
/* Answers each open declare of the job whose tables are all ready, or one of whose tables has
 * failed. */
void tables_check_waits(struct job *job);

#endif
