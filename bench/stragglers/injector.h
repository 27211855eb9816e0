/* Injectors: make one lane slow, or skew the first placement. */
#ifndef GRADPOOL_BENCH_INJECTOR_H
#define GRADPOOL_BENCH_INJECTOR_H

#include "bench/lib/own_service.h"
#include "bench/stragglers/slowing.h"

#include <stdint.h>
#include <sys/types.h>

#define INJECTOR_LANES SLOWING_LANES
#define INJECTOR_HOGS 4

enum injector_kind {
    INJECTOR_NONE,
    INJECTOR_SLEEP, /* the lane sleeps four times as long for each byte */
    /* the lane that serves one chosen task sleeps in each round of this task, also after a move of
     * the task */
    INJECTOR_TASK,
    INJECTOR_HOG,  /* other processes use the lane's core */
    INJECTOR_CAP,  /* the bandwidth of the lane's port is limited */
    INJECTOR_SKEW, /* all tasks are on the lane at first */
    INJECTORS,
};

struct injector {
    enum injector_kind kind;
    uint32_t lane;                   /* index of the slow lane, 0 to 3 */
    struct slowing_numbers *numbers; /* numbers that the lanes read */
    uint32_t usual, times; /* sleep of each lane in ns for each KiB; factor of the slow lane */
    uint32_t task_ns;      /* sleep in ns for each round of the slow task */
    uint16_t port;         /* TCP port of the first lane */
    uint32_t cap_mbit;
    const struct service *service;
    const char *job;
    pid_t hogs[INJECTOR_HOGS];
};

const char *injector_name(enum injector_kind kind);
/* Creates the file and sets its name in the environment, for services that start later. */
int injector_init(struct injector *injector, char *ret_path, size_t path_bytes);
void injector_fini(struct injector *injector, const char *path);
int injector_begin(struct injector *injector);
void injector_end(struct injector *injector);
/* Moves this process to a separate network. Returns 0, or a negative errno: not permitted here. */
int injector_enter_network(void);

#endif
