/* The address of the service for others. */
#ifndef GRADPOOL_COORDINATOR_PEER_ADVERTISE_H
#define GRADPOOL_COORDINATOR_PEER_ADVERTISE_H

#include "svc/base/err.h"

struct service;

/* Fills endpoint_url and data_host; needs the open listeners. */
int advertise_choose(struct service *s, struct err *err);

#endif
