/* State that all rooms of the coordinator share. README.md has the map and the invariants. */
#ifndef GRADPOOL_COORDINATOR_SERVICE_H
#define GRADPOOL_COORDINATOR_SERVICE_H

#include "svc/base/clock.h"
#include "svc/coordinator/aggregator/looks.h"
#include "svc/coordinator/coordinator.h"
#include "svc/coordinator/fleet/fleet.h"
#include "svc/coordinator/growth/scaling.h"
#include "svc/coordinator/hooks.h"
#include "svc/coordinator/job/tensor.h"
#include "svc/coordinator/peer/door.h"
#include "svc/coordinator/settings.h"
#include "svc/coordinator/store/events.h"

#include <limits.h>
#include <unistd.h>

#define SESSION_AWAY_NS (10 * NS_PER_S) /* time without a connection after which a worker is lost */
#define SESSION_RESTORE_NS (30 * NS_PER_S) /* the same time after a restart of the coordinator */
#define AGGREGATOR_LOCAL_AWAY_NS (5 * NS_PER_S)
/* default of --aggregator-timeout; also used after a restart */
#define AGGREGATOR_REMOTE_AWAY_NS (10 * NS_PER_S)
#define CALL_DEADLINE_NS (10 * NS_PER_S) /* time for the answer of an aggregator */
#define DRAIN_DEADLINE_NS (10 * NS_PER_S)
/* Pause before another attempt after memory was missing or the store has failed. */
#define RETRY_NS NS_PER_S

enum service_phase { SERVICE_UP, SERVICE_DRAINING, SERVICE_DOWN };

/* Callbacks from lower rooms to higher rooms (hooks.h). */
struct hooks {
    const struct peer_hooks *peer;
    const struct aggregator_hooks *aggregator;
    const struct job_hooks *job;
    const struct service_hooks *service;
};

/* Unfinished operations. Each list or pointer belongs to one room. */
struct works {
    struct list migrations, orders, savings, timelines, filings;
    struct slots *slots; /* sites, pools and their jobs */
};

/* Names and addresses under which other processes find this service. */
struct identity {
    char node[HOST_NAME_MAX + 1];
    char endpoint_url[300];
    char data_host[256]; /* address of local lanes; "": each lane chooses its own */
    uint64_t started_ns;
    struct settings *settings; /* constant after the start */
};

/* Timers for repeated attempts. */
struct retries {
    struct service *service;
    /* fires at the next attempt to place pieces, after memory was missing or the store has
     * failed */
    struct timer stranded;
    /* fires when a replica holder that was refused may be chosen again */
    struct timer unfit;
};

/* The service. The state of each room is in a struct of the room, to which this struct has a
 * pointer. */
struct service {
    const struct hooks *on;
    struct coordinator_options *options; /* the service owns the options and their strings */
    struct loop *loop;
    struct store *store;
    struct store_service *numbers;
    struct identity *identity;
    struct door *door;
    struct list aggregators, jobs;
    struct pings *pings;
    struct looks *looks;
    struct fleet *fleet;
    struct silence *silence;
    struct goodbyes *goodbyes;
    struct past_jobs *history;
    struct works *works;
    struct scaling *scaling;
    struct measuring *measuring;
    struct showing *showing;
    struct events *events;
    struct retries *retries;
    struct service_end *ending;
    enum service_phase phase;
};

struct coordinator {
    struct service *service;
    int lock_fd;
    struct source signals;
};

static inline uint64_t piece_bytes_max(const struct service *s)
{
    uint64_t named = s->options->piece_bytes_max;
    return named ? named : PACKER_PIECE_BYTES_MAX;
}

/* Schedules a call of recovery_place_stranded() in RETRY_NS, because memory was missing or the
 * store has failed. */
static inline void service_retry_later(struct service *s)
{
    timer_start(s->loop, &s->retries->stranded, clock_now_ns() + RETRY_NS);
}

#endif
