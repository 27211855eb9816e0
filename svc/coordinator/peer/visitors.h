/* Visitors are TCP connections without a job. Counts them and all TCP connections (K23). */
#ifndef GRADPOOL_COORDINATOR_PEER_VISITORS_H
#define GRADPOOL_COORDINATOR_PEER_VISITORS_H

#include "svc/coordinator/peer/peer.h"

/* Adds a new TCP connection to the visitors. If there are too many, another visitor is closed.
 * False: there is no room, and no visitor that could be closed. */
bool visitors_make_room(struct service *s, struct peer *p);
/* Handles a message of a visitor: removes it from the list if it has joined a job, or moves it to
 * the end. */
void visitors_heard(struct peer *p);
/* Adds a peer that has left its job or aggregator. */
void visitors_return(struct peer *p);
/* Removes a peer that is being freed. */
void visitors_forget(struct peer *p);
/* Checks whether the tenant may have one more connection. -EDQUOT. */
int visitors_admit(struct peer *p, struct tenant *tenant, struct err *err);
/* Returns whether TCP connections and watched workers use all descriptors except the reserved
 * ones. */
bool visitors_are_many(const struct service *s);

#endif
