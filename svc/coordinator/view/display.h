/* A display shows the service to people, apart from control connections: reports, a web server, a
 * test. The coordinator calls only these functions. None of them may wait. */
#ifndef GRADPOOL_COORDINATOR_VIEW_DISPLAY_H
#define GRADPOOL_COORDINATOR_VIEW_DISPLAY_H

#include "svc/channel/channel.h"

#include <stdbool.h>

struct display {
    void *context;
    uint64_t period_ns; /* time between two snapshots of the service's state; 0: 1 s */
    int fd;             /* descriptor that is readable when run() has work; -1: never */
    /* Does waiting work, and never waits. Returns the time by which it has to be called again (ns;
     * UINT64_MAX: not before fd is readable). */
    uint64_t (*run)(void *context);
    /* Receives the service's state: status and jobs as an operator sees them, without ranks and
     * limits of jobs. Owns both messages from then on. */
    void (*show)(void *context, envelope *status, envelope *jobs);
    /* Returns the last state as a report; the caller frees the text. -ENODATA: no state yet;
     * -ENOMEM. */
    int (*report)(void *context, bool is_json, char **ret_text, size_t *ret_bytes);
    void (*destroy)(void *context);
};

struct service;

int display_create(struct service *s);
void display_destroy(struct service *s);
/* Begins to send the state, if the options have a display. */
int display_start(struct service *s);
/* Ends a long pause: the next state is sent after the usual pause. */
void display_wake(struct service *s);
/* Ends the display. Does nothing without one. */
void display_end(struct service *s);

struct peer;

/* Handles `gradpool report`: sends the last state as text. */
void report_handle(struct peer *p, const envelope *message);

#endif
