/* What shows the service to people besides control connections: a web server, or a test. The
 * coordinator knows it by these functions only; none of them may wait. */
#ifndef GRADPOOL_COORDINATOR_DISPLAY_H
#define GRADPOOL_COORDINATOR_DISPLAY_H

#include "svc/wire/channel.h"

struct display {
    void *context;
    int fd; /* readable: there is something for run() */
    /* Returns when it wants to be called at the latest (ns; UINT64_MAX: not before fd is). */
    uint64_t (*run)(void *context);
    /* The service as it is, as status and jobs show it to an operator. Takes over both. */
    void (*show)(void *context, envelope *status, envelope *jobs);
    void (*destroy)(void *context);
};

struct service;

/* Shows the service from now on, if there is a display in the options. */
int display_start(struct service *s);
/* Destroys it; fine without one. */
void display_end(struct service *s);

#endif
