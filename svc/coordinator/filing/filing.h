/* Exports and imports of tables, for operators and for ranks that copy a snapshot. The lanes stop
 * the tables, those with BSP at one clock. Then rows are sent in parts. RULES.md: K115, K150. */
#ifndef GRADPOOL_COORDINATOR_FILING_FILING_H
#define GRADPOOL_COORDINATOR_FILING_FILING_H

#include "svc/coordinator/job/table.h"

void filing_handle(struct peer *p, const envelope *message);
/* Ends the exports and imports of a peer that is being freed. */
void filings_peer_gone(const struct peer *p);
/* Frees all exports and imports at the end of the service, without messages. */
void filings_destroy(struct service *s);

#endif
