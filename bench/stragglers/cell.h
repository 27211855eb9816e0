/* One cell: a policy with an injector, on a service of its own, from before the injector begins
 * until after it has ended. */
#ifndef GRADPOOL_BENCH_CELL_H
#define GRADPOOL_BENCH_CELL_H

#include "bench/stragglers/herd.h"
#include "bench/stragglers/injector.h"

#include <limits.h>

#define CELL_WINDOW 50       /* rounds */
#define CELL_SLOW_WINDOWS 12 /* ten windows for the recovery, and two for the settled speed */
/* A window with this part of the speed without a straggler counts as recovered. */
#define CELL_REACHES 0.85
#define CELL_LANES 4

struct policy {
    const char *name, *placing, *exploring; /* names as in options of serve */
    bool adapts;                            /* false: a few windows suffice */
    bool stops_world;                       /* the bench stops the job and drains the slow lane */
};

struct cell {
    const struct policy *policy;
    enum injector_kind injector;
    uint32_t lane; /* index */
    struct herd_setting herd;
    const char *cores, *lanes_per_core, *piece_max;
    uint32_t usual_ns_per_kib, times, task_ns, cap_mbit;
    /* Results; ns a round. */
    double before_ns, before_p95_ns;
    double onset_ns;                   /* first window with the injector */
    double during_ns, during_p95_ns;   /* all windows with the injector */
    double settled_ns, settled_p95_ns; /* last two windows with the injector */
    double after_ns;          /* last window, without the injector again; 0: not measured */
    uint32_t windows, rounds; /* windows and rounds until recovered; 0: never */
    uint32_t tried, kept;     /* experiments, until the injector ended */
    /* Bytes of tensors that are on other lanes at the end than before, or than in the placement by
     * the injector. A move that was undone counts as 0. */
    double bytes_moved;
    struct herd_checks checks;
    char why_skipped[128]; /* "": the cell was run */
};

/* Returns a negative errno, with a text on standard error. */
int cell_run(struct cell *cell);

#endif
