/* A display shows the service outside of control connections: as report files, by a web server, or
 * in a test. The coordinator calls only these functions, and none of them may block. */
#ifndef GRADPOOL_COORDINATOR_VIEW_DISPLAY_H
#define GRADPOOL_COORDINATOR_VIEW_DISPLAY_H

#include "svc/channel/channel.h"

#include <stdbool.h>

struct display {
    void *context;
    uint64_t period_ns; /* time between two calls of show(); 0: 1 s */
    int fd;             /* descriptor that is readable when run() has work; -1: none */
    /* Does pending work without blocking. Returns the time in ns at which the function must be
     * called again; UINT64_MAX: no call is needed before fd is readable. */
    uint64_t (*run)(void *context);
    /* Receives the service's state: status and jobs as an operator sees them, without ranks and
     * limits of jobs. The display owns both messages from then on. */
    void (*show)(void *context, envelope *status, envelope *jobs);
    /* Writes the last state as a report; the caller frees the text. Returns 0, -ENOMEM, or -ENODATA
     * if there is no state yet. */
    int (*report)(void *context, bool is_json, char **ret_text, size_t *ret_bytes);
    void (*destroy)(void *context);
};

struct service;

int display_create(struct service *s);
void display_destroy(struct service *s);
/* Begins to pass states to the display. Does nothing if the options have no display. */
int display_start(struct service *s);
/* Ends a long pause between states. The next state follows after the usual pause. */
void display_wake(struct service *s);
/* Ends the display. Does nothing if the options have no display. */
void display_end(struct service *s);

struct peer;

/* Handles `gradpool report`: sends the last state as text. */
void report_handle(struct peer *p, const envelope *message);

#endif
