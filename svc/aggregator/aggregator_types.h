/* The aggregator process, for its own files only. */
#ifndef GRADPOOL_AGGREGATOR_AGGREGATOR_TYPES_H
#define GRADPOOL_AGGREGATOR_AGGREGATOR_TYPES_H

#include "svc/aggregator/aggregator.h"
#include "svc/aggregator/lane_thread.h"
#include "svc/wire/channel.h"
#include "svc/wire/endpoint.h"

#include <stdbool.h>

#define AGGREGATOR_LANES_MAX 256

struct aggregator {
    const struct aggregator_options *options;
    uint64_t incarnation; /* random: names this process in tickets */
    enum reduce_set kernels;
    enum lane_policy policy;
    uint32_t number; /* given by the coordinator; 0: none yet */
    struct endpoint coordinator;
    bool has_key; /* then the control connection speaks TLS with it */
    struct key key;
    char node[256];
    char host[256]; /* told to workers */
    struct cores *cores;
    struct lane_thread *lanes[AGGREGATOR_LANES_MAX];
    uint32_t lane_ids[AGGREGATOR_LANES_MAX]; /* service-wide */
    size_t lanes_count;
    struct channel *channel; /* NULL while the coordinator is away */
    int signal_fd;
    int failure_fd; /* readable: a lane has a failed job to tell of */
    bool is_draining;
};

/* aggregator_control.c: connects, joins (again). -ETIMEDOUT, -ECONNREFUSED, ...: try later. */
int control_join(struct aggregator *a, uint64_t deadline_ns, struct err *err);
/* Says goodbye, once the lanes are closed; a coordinator that does not answer is left without. */
void control_leave(struct aggregator *a);
/* Takes what the coordinator sent. Any error: the coordinator is away. */
int control_receive(struct aggregator *a);

/* aggregator_serve.c: what each request does; answers it on the channel. */
int serve_request(struct aggregator *a, const envelope *request);
/* Tells the coordinator of every job that has failed on a lane (A12). Any error: it is away. */
int serve_failures(struct aggregator *a);
/* aggregator_stats.c: what the lanes have counted, and of one job (0: of none) each piece; to be
 * freed like any message. NULL: no memory. */
Gradpool__Wire__StatsReply *stats_build(struct aggregator *a, uint32_t detailed);
/* Connections of all lanes together. */
size_t serve_connections(struct aggregator *a);
/* What the lanes serve now, as rows for AggregatorJoin; free each and the array with
 * serve_held_free(). */
int serve_held(struct aggregator *a, Gradpool__Wire__PieceHeld ***ret_rows, size_t *ret_count);
void serve_held_free(Gradpool__Wire__PieceHeld **rows, size_t count);

#endif
