/* Requests of `gradpool tenant`: add, change, revoke, list. RULES.md: K10 to K12. */
#ifndef GRADPOOL_COORDINATOR_ORDER_TENANT_REQUEST_H
#define GRADPOOL_COORDINATOR_ORDER_TENANT_REQUEST_H

#include "svc/coordinator/peer/peer.h"

void tenant_handle_add(struct peer *p, const envelope *message);
void tenant_handle_set(struct peer *p, const envelope *message);
void tenant_handle_revoke(struct peer *p, const envelope *message);
void tenant_handle_list(struct peer *p, const envelope *message);
/* Completes revocations that a crash has interrupted: ends the jobs of the revoked tenants. */
void tenants_end_revoked(struct service *s);

#endif
