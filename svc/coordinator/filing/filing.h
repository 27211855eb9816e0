/* Exports and imports of tables, for operators. The lanes stop the table at one clock. Then the
 * rows travel in parts between lanes and operator. RULES.md: K115. */
#ifndef GRADPOOL_COORDINATOR_FILING_FILING_H
#define GRADPOOL_COORDINATOR_FILING_FILING_H

#include "svc/coordinator/job/table.h"

void filing_handle(struct peer *p, const envelope *message);
/* Ends the exports and imports of a peer that is being freed. */
void filings_peer_gone(const struct peer *p);
/* Frees all exports and imports at the end of the service, without messages. */
void filings_destroy(struct service *s);

#endif
