/* Visitors: TCP connections without a job. This file limits their number and the number of all TCP
 * connections (K23). */
#ifndef GRADPOOL_COORDINATOR_PEER_VISITORS_H
#define GRADPOOL_COORDINATOR_PEER_VISITORS_H

#include "svc/coordinator/peer/peer.h"

/* Adds a new TCP connection to the visitors. If there are too many, another visitor is closed.
 * Returns false if the limit is reached and no visitor can be closed. */
bool visitors_make_room(struct service *s, struct peer *p);
/* Called after a message of a visitor. The visitor leaves the list if it has joined a job;
 * otherwise it moves to the end of the list. */
void visitors_heard(struct peer *p);
/* Adds a peer again after its job or aggregator has ended. */
void visitors_return(struct peer *p);
void visitors_forget(struct peer *p);
/* Checks whether the tenant may have one more connection. Returns 0 or -EDQUOT. */
int visitors_admit(struct peer *p, struct tenant *tenant, struct err *err);
/* Returns whether TCP connections and watched workers use all descriptors that are not reserved. */
bool visitors_are_many(const struct service *s);

#endif
