/* A separate gradpool service for the bench, with its own state directory and a free port. The
 * program `gradpool` is in the folder of gradpool-bench. */
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
    pid_t coordinator; /* process of the coordinator; 0: not running */
    pid_t aggregators[SERVICE_PROCESSES_MAX];
    size_t aggregators_count;
};

struct service_setting {
    /* Options of `gradpool serve`. For NULL the service uses its default, except that there is one
     * aggregator, and `listen` is a free port. */
    const char *cores, *lanes_per_core, *policy, *scale_hold, *scale, *aggregators, *listen;
    const char *job_memory_max, *lane_memory_max, *explore, *piece_max, *data_port;
    const char *aggregator_timeout;
    /* value of `--stop`; NULL: `jobs`, because the bench ends the service by SIGTERM and does not
     * start it again */
    const char *stop;
    const char *program; /* name of the program; NULL: gradpool */
};

/* Starts a service with one lane on core 0 (host.h) and the default policy. Returns when the lane
 * is up. Returns a negative errno, with a text on standard error. */
int service_start(struct service *s);
int service_start_as(struct service *s, const struct service_setting *setting);
/* Starts the coordinator again on the same state. Returns when the coordinator answers. All its
 * aggregators reconnect, except aggregators that are ending. */
int service_start_again(struct service *s, const struct service_setting *setting);
/* Returns whether the coordinator has ended by itself. Its status is not collected. */
bool service_has_ended(const struct service *s);
/* Ends the coordinator and its jobs. Returns the status of process_reap(); a coordinator that is
 * too slow is killed. */
int service_end(struct service *s);
/* Moves the service's log to a folder that service_stop() does not remove. */
int service_keep_log(const struct service *s, char *ret_path, size_t path_bytes);
/* Ends the service and removes its folder. May be called even if the start failed. */
void service_stop(struct service *s);

/* Returns the CPU time of the aggregators, or of the coordinator. */
uint64_t service_lanes_cpu_ns(const struct service *s);
uint64_t service_coordinator_cpu_ns(const struct service *s);

#endif
