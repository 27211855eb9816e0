/* The most recent events about lanes and tasks, in a ring, for `status` and the report. */
#ifndef GRADPOOL_COORDINATOR_STORE_EVENTS_H
#define GRADPOOL_COORDINATOR_STORE_EVENTS_H

#include <stdint.h>

#define EVENTS_KEPT 64

struct event {
    uint64_t at_ns;
    const char *kind; /* kind of the event, such as "open", "park" or "move"; a string literal */
    char text[384];
};

struct events {
    struct event ring[EVENTS_KEPT];
    uint64_t count; /* number of all events since the start */
};

/* Adds an event. A text that is too long is truncated. */
void events_note(struct events *events, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns event number `number`; the newest event has the number `count - 1`. Returns NULL if the
 * event was overwritten or does not exist yet. */
const struct event *events_at(const struct events *events, uint64_t number);

#endif
