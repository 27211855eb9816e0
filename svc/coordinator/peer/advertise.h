/* Address under which other processes connect to the service. */
#ifndef GRADPOOL_COORDINATOR_PEER_ADVERTISE_H
#define GRADPOOL_COORDINATOR_PEER_ADVERTISE_H

#include "svc/base/err.h"

struct service;

/* Sets endpoint_url and data_host. Called after the listeners are open. */
int advertise_choose(struct service *s, struct err *err);

#endif
