/* Visitors: TCP connections without job; their number, and that of all TCP connections (K23). */
#ifndef GRADPOOL_COORDINATOR_PEER_VISITORS_H
#define GRADPOOL_COORDINATOR_PEER_VISITORS_H

#include "svc/coordinator/peer/peer.h"

/* Adds a new TCP connection to the visitors, closing another visitor if there are too many. False:
 * there is no room, and no visitor to close. */
bool visitors_make_room(struct service *s, struct peer *p);
/* After a message of the visitor: removes it from the list if it has joined, else moves it to the
 * end. */
void visitors_heard(struct peer *p);
/* Adds a peer that has left its job or aggregator. */
void visitors_return(struct peer *p);
/* Removes a peer that is freed. */
void visitors_forget(struct peer *p);
/* Whether the tenant may have one more connection. -EDQUOT. */
int visitors_admit(struct peer *p, struct tenant *tenant, struct err *err);
/* Whether TCP connections and watched workers use all descriptors but the reserved ones. */
bool visitors_are_many(const struct service *s);

#endif
