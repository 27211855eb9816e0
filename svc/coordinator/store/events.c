/* Ring of recent events. Owns its rows. */
#include "svc/coordinator/store/events.h"

#include "svc/base/clock.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

void events_note(struct events *events, const char *kind, const char *format, ...)
{
    struct event *to = &events->ring[events->count++ % EVENTS_KEPT];
    va_list arguments;
    *to = (struct event){.at_ns = clock_now_ns(), .kind = kind};
    va_start(arguments, format);
    vsnprintf(to->text, sizeof to->text, format, arguments);
    va_end(arguments);
}

const struct event *events_at(const struct events *events, uint64_t number)
{
    bool is_kept = number < events->count && number + EVENTS_KEPT >= events->count;
    return is_kept ? &events->ring[number % EVENTS_KEPT] : NULL;
}
