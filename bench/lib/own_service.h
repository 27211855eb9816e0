/* A gradpool service of the bench's own: a private state directory, a free port. Its program lies
 * beside this one. */
#ifndef GRADPOOL_BENCH_OWN_SERVICE_H
#define GRADPOOL_BENCH_OWN_SERVICE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVICE_PROCESSES_MAX 8

struct service {
    char program[PATH_MAX], folder[PATH_MAX], log[PATH_MAX + 16], endpoint[PATH_MAX + 32];
    pid_t coordinator; /* 0: not running */
    pid_t aggregators[SERVICE_PROCESSES_MAX];
    size_t aggregators_count;
};

struct service_setting {
    /* As `gradpool serve` has them; NULL: its own choice, but one aggregator and a free port. */
    const char *cores, *lanes_per_core, *policy, *scale_hold, *scale, *aggregators, *listen;
    const char *job_memory_max, *lane_memory_max, *explore, *piece_max, *data_port;
    const char *aggregator_timeout;
    const char *stop;    /* NULL: jobs; SIGTERM comes when the bench dies, and no next start does */
    const char *program; /* NULL: gradpool */
};

/* One lane on core 0 (host.h), the service's own policy. Returns when its lane serves. Negative
 * errno, with a text on standard error. */
int service_start(struct service *s);
int service_start_as(struct service *s, const struct service_setting *setting);
/* Starts a coordinator again that has ended, on the same state. Returns when it answers; its
 * aggregators come back, but for those that leave. */
int service_start_again(struct service *s, const struct service_setting *setting);
/* The coordinator has ended by itself: it is still to be reaped. */
bool service_has_ended(const struct service *s);
/* Tells the coordinator to end, with its jobs; process_reap() of it: what is too slow is killed. */
int service_end(struct service *s);
/* Moves its log to where service_stop() leaves it. */
int service_keep_log(const struct service *s, char *ret_path, size_t path_bytes);
void service_stop(struct service *s); /* safe on one that did not start */

/* Used so far by the aggregators, and by the coordinator. */
uint64_t service_lanes_cpu_ns(const struct service *s);
uint64_t service_coordinator_cpu_ns(const struct service *s);

#endif
