/* How many control connections there may be over TCP (K23). */
#ifndef GRADPOOL_COORDINATOR_PEER_VISITORS_H
#define GRADPOOL_COORDINATOR_PEER_VISITORS_H

#include "svc/coordinator/peer/peer.h"

/* A connection over TCP has come. false: there is no room, and nobody who could go instead. */
bool visitors_make_room(struct service *s, struct peer *p);
/* It has said something: joined, perhaps. */
void visitors_heard(struct peer *p);
/* It has joined nothing any more. */
void visitors_return(struct peer *p);
/* It goes. */
void visitors_forget(struct peer *p);
/* Whether its tenant may have one connection more: -EDQUOT. */
int visitors_admit(struct peer *p, struct tenant *tenant, struct err *err);
/* Whether those out there take up all descriptors but the ones kept back. */
bool visitors_are_many(const struct service *s);

#endif
