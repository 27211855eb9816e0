/* One cell: a policy with an injector on a separate service, measured from before the start of the
 * injector until after its end. */
#ifndef GRADPOOL_BENCH_CELL_H
#define GRADPOOL_BENCH_CELL_H

#include "bench/stragglers/herd.h"
#include "bench/stragglers/injector.h"

#include <limits.h>

#define CELL_WINDOW 50 /* number of rounds in a window */
/* number of windows with the injector: ten for the recovery, and two to measure the final speed */
#define CELL_SLOW_WINDOWS 12
/* A window with at least this part of the speed without a straggler counts as recovered. */
#define CELL_REACHES 0.85
#define CELL_LANES 4

struct policy {
    const char *name, *placing, *exploring; /* values of options of `serve` */
    /* whether the policy adapts; otherwise a few windows suffice */
    bool adapts;
    /* whether the bench stops the job and drains the slow lane */
    bool stops_world;
};

struct cell {
    const struct policy *policy;
    enum injector_kind injector;
    uint32_t lane; /* index of the slow lane */
    struct herd_setting herd;
    const char *cores, *lanes_per_core, *piece_max;
    uint32_t usual_ns_per_kib, times, task_ns, cap_mbit;
    /* Results: round times. */
    double before_ns, before_p95_ns;
    double onset_ns;                   /* mean of the first window with the injector */
    double during_ns, during_p95_ns;   /* mean of all windows with the injector */
    double settled_ns, settled_p95_ns; /* means of the last two windows with the injector */
    double after_ns;          /* mean of the last window, after the injector has ended; 0: not
                               * measured */
    uint32_t windows, rounds; /* numbers of windows and rounds until the recovery; 0: no recovery */
    /* numbers of tried and of kept experiments before the end of the injector */
    uint32_t tried, kept;
    /* Bytes of the tensors that have left their first lane: the lane before the start of the
     * injector, or the lane on which the injector placed the tensor. A move that was undone counts
     * as 0. */
    double bytes_moved;
    struct herd_checks checks;
    char why_skipped[128]; /* reason why the cell was not run; "": it was run */
};

/* Runs the cell, and sets its results. Returns 0, or a negative errno with a text on standard
 * error. */
int cell_run(struct cell *cell);

#endif
