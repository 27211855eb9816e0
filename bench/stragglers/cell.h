/* One cell: a policy beside an injector, on a service of its own, from before the injector begins
 * until after it has ended. */
#ifndef GRADPOOL_BENCH_CELL_H
#define GRADPOOL_BENCH_CELL_H

#include "bench/stragglers/herd.h"
#include "bench/stragglers/injector.h"

#include <limits.h>

#define CELL_WINDOW 50       /* rounds */
#define CELL_SLOW_WINDOWS 12 /* ten in which to recover, and two that say how it runs then */
#define CELL_REACHES 0.85    /* of the straggler-free speed: recovered */
#define CELL_LANES 4

struct policy {
    const char *name, *placing, *exploring; /* as serve has them */
    bool adapts;                            /* else a few windows tell all */
    bool stops_world;                       /* the bench takes the slow lane out, all waiting */
};

struct cell {
    const struct policy *policy;
    enum injector_kind injector;
    uint32_t lane; /* index */
    struct herd_setting herd;
    const char *cores, *lanes_per_core, *piece_max;
    uint32_t usual_ns_per_kib, times, task_ns, cap_mbit;
    /* What came of it; ns a round. */
    double before_ns, before_p95_ns;
    double onset_ns;                   /* of the first window with the injector */
    double during_ns, during_p95_ns;   /* all of it */
    double settled_ns, settled_p95_ns; /* of its last two windows */
    double after_ns;                   /* of the last window, without it again; 0: not looked at */
    uint32_t windows, rounds;          /* until recovered; 0: never */
    uint32_t tried, kept;              /* experiments, until the injector ended */
    double bytes_moved; /* of tensors that are on other lanes in the end than before, or than where
                         * the injector has put them; there and back is nothing */
    struct herd_checks checks;
    char why_skipped[128]; /* "": it was run */
};

/* Negative errno, with a text on standard error. */
int cell_run(struct cell *cell);

#endif
