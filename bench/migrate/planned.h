/* Measures the pauses of eight jobs during planned events of the service. */
#ifndef GRADPOOL_BENCH_MIGRATE_PLANNED_H
#define GRADPOOL_BENCH_MIGRATE_PLANNED_H

#include "bench/lib/own_service.h"

/* Maximum size of a piece, and so of a task. */
#define PLANNED_PIECE_MAX "262144"

enum planned_event {
    PLANNED_DRAIN,   /* a drain of the lane with all tasks */
    PLANNED_END,     /* SIGTERM of the aggregator with all tasks */
    PLANNED_RESTART, /* SIGTERM and a new start of `serve`; the aggregators stay */
    PLANNED_EVENTS
};

const char *planned_event_name(enum planned_event event);

/* The longest iteration of the worst job in a window: in ms, and divided by that job's median
 * without an event. */
struct planned_longest {
    double median, worst; /* median and worst value over all windows */
    double median_ms;
};

struct planned_row {
    uint32_t jobs, tasks, events;         /* number of tasks, as counted by the service */
    uint64_t state_bytes;                 /* parameters and moments of all jobs, on the lane */
    double iteration_ms;                  /* median of the jobs' medians, without an event */
    double event_ms;                      /* median time from the order to its end */
    struct planned_longest near, control; /* `near`: in windows with an event; `control`: in windows
                                           * without an event */
    uint64_t failed_rounds, wrong;
};

/* Runs `count` events, one after the other. The service has two aggregators with one lane each;
 * `setting` started it and starts it again. Returns a negative errno, with a text on standard
 * error. */
int planned_run(struct service *service, const struct service_setting *setting,
                enum planned_event event, const char *transport, uint32_t count,
                struct planned_row *ret_row);

#endif
