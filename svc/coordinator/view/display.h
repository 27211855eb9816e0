/* What shows the service to people besides control connections: reports, a web server, a test. The
 * coordinator knows it by these functions only; none of them may wait. */
#ifndef GRADPOOL_COORDINATOR_VIEW_DISPLAY_H
#define GRADPOOL_COORDINATOR_VIEW_DISPLAY_H

#include "svc/channel/channel.h"

#include <stdbool.h>

struct display {
    void *context;
    uint64_t period_ns; /* between two snapshots; 0: a second */
    int fd;             /* readable: there is something for run(); -1: there never is */
    /* Returns when it wants to be called at the latest (ns; UINT64_MAX: not before fd is). */
    uint64_t (*run)(void *context);
    /* The service as it is, as status and jobs show it to an operator, but for ranks and limits of
     * jobs. Takes over both. */
    void (*show)(void *context, envelope *status, envelope *jobs);
    /* What it was shown, as a report; the caller frees the text. -ENODATA: nothing yet, -ENOMEM. */
    int (*report)(void *context, bool is_json, char **ret_text, size_t *ret_bytes);
    void (*destroy)(void *context);
};

struct service;

int display_create(struct service *s);
void display_destroy(struct service *s);
/* Shows the service from now on, if there is a display in the options. */
int display_start(struct service *s);
/* Something has come, gone or begun: the next snapshot waits no longer than usual. */
void display_wake(struct service *s);
/* Destroys it; fine without one. */
void display_end(struct service *s);

struct peer;

/* `gradpool report`: what the display was shown, as a text. */
void report_handle(struct peer *p, const envelope *message);

#endif
