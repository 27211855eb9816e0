/* Display of the service for people, apart from control connections: reports, a web server, a test.
 * The coordinator uses only these functions; none of them may wait. */
#ifndef GRADPOOL_COORDINATOR_VIEW_DISPLAY_H
#define GRADPOOL_COORDINATOR_VIEW_DISPLAY_H

#include "svc/channel/channel.h"

#include <stdbool.h>

struct display {
    void *context;
    uint64_t period_ns; /* time between two snapshots; 0: 1 s */
    int fd;             /* readable when run() has work; -1: never */
    /* Works without waiting. Returns the latest time of its next call (ns; UINT64_MAX: when fd is
     * readable). */
    uint64_t (*run)(void *context);
    /* Gets a snapshot: status and jobs as an operator sees them, without ranks and limits of jobs.
     * Owns both from then on. */
    void (*show)(void *context, envelope *status, envelope *jobs);
    /* The last snapshot as a report; the caller frees the text. -ENODATA: no snapshot yet,
     * -ENOMEM. */
    int (*report)(void *context, bool is_json, char **ret_text, size_t *ret_bytes);
    void (*destroy)(void *context);
};

struct service;

int display_create(struct service *s);
void display_destroy(struct service *s);
/* Begins to send snapshots, if the options have a display. */
int display_start(struct service *s);
/* Ends a long pause: the next snapshot comes after the usual one. */
void display_wake(struct service *s);
/* Destroys the display; no effect without one. */
void display_end(struct service *s);

struct peer;

/* Handles `gradpool report`: the last snapshot as text. */
void report_handle(struct peer *p, const envelope *message);

#endif
