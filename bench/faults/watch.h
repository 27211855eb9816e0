/* The ends of the service's processes during `faults`: the coordinator; its aggregators, whose
 * ends it logs; and the aggregators of a former coordinator, which become children of this
 * process. */
#ifndef GRADPOOL_BENCH_FAULTS_WATCH_H
#define GRADPOOL_BENCH_FAULTS_WATCH_H

#include "bench/faults/company.h"
#include "bench/faults/ends.h"

#include <stdio.h>

struct watch {
    struct service *service;
    struct company *company;
    FILE *log; /* log of the service; NULL: not open yet */
    struct ends ends;
    uint64_t looked_ns;
};

/* Prepares the watch. Called before the start of the service. */
int watch_init(struct watch *watch, struct service *service, struct company *company);
/* Judges all ends since the last call. */
void watch_look(struct watch *watch);
/* Records that the bench is about to kill an aggregator. */
void watch_strike(struct watch *watch, pid_t pid);
/* Records that the bench is about to send SIGTERM to an aggregator. Such a planned end excuses no
 * lost copy. */
void watch_retire(struct watch *watch, pid_t pid);
/* Waits for the end of the coordinator. False: a crash, because its status (128 + signal, or an
 * exit code) is not `expected`. */
bool watch_bury_coordinator(struct watch *watch, int expected);
/* Ends the service and judges the last ends. */
void watch_end(struct watch *watch);

#endif
