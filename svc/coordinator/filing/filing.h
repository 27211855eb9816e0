/* Exports and imports of tables, for operators: the lanes of a table hold it at one clock, and its
 * rows travel in parts between them and the operator. RULES.md: K115. */
#ifndef GRADPOOL_COORDINATOR_FILING_FILING_H
#define GRADPOOL_COORDINATOR_FILING_FILING_H

#include "svc/coordinator/job/table.h"

void filing_handle(struct peer *p, const envelope *message);
/* Ends the exports and imports of a peer that is being freed. */
void filings_peer_gone(const struct peer *p);
/* Frees all at the end of the service, without messages. */
void filings_destroy(struct service *s);

#endif
