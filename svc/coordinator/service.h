/* The service as a whole: what the coordinator's files share. README.md has its invariants (K1 to
 * K8) and says which file owns what. */
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

#define SESSION_AWAY_NS (10 * NS_PER_S)    /* a worker without control connection */
#define SESSION_RESTORE_NS (30 * NS_PER_S) /* the same after a restart of ours */
#define AGGREGATOR_LOCAL_AWAY_NS (5 * NS_PER_S)
#define AGGREGATOR_REMOTE_AWAY_NS (10 * NS_PER_S) /* after a restart of ours */
#define CALL_DEADLINE_NS (10 * NS_PER_S)          /* an aggregator's answer */
#define DRAIN_DEADLINE_NS (10 * NS_PER_S)
#define RETRY_NS NS_PER_S /* of what memory or the store did not allow */

enum service_phase { SERVICE_UP, SERVICE_DRAINING, SERVICE_DOWN };

/* News that higher rooms want to hear. */
struct hooks {
    const struct peer_hooks *peer;
    const struct aggregator_hooks *aggregator;
    const struct job_hooks *job;
    const struct service_hooks *service;
};

/* Work under way, each kind in a room of its own. */
struct works {
    struct list migrations, orders, savings, timelines;
};

/* As others know this service. */
struct identity {
    char node[HOST_NAME_MAX + 1];
    char endpoint_url[300];
    char data_host[256]; /* for local lanes; "": they choose */
    uint64_t started_ns;
    struct settings *settings; /* filled once */
};

/* Work that waits for better times. */
struct retries {
    struct service *service;
    struct timer stranded; /* what memory or the store did not allow */
    struct timer unfit;    /* until the last keeper that was relieved is fit again */
};

/* The state of each room is its own, behind a pointer. */
struct service {
    const struct hooks *on;
    struct coordinator_options *options; /* owned, with its strings */
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

/* Of a task, too. */
static inline uint64_t piece_bytes_max(const struct service *s)
{
    uint64_t named = s->options->piece_bytes_max;
    return named ? named : PACKER_PIECE_BYTES_MAX;
}

/* Work that memory or the store did not allow is tried again, of all jobs, after RETRY_NS. */
static inline void service_retry_later(struct service *s)
{
    timer_start(s->loop, &s->retries->stranded, clock_now_ns() + RETRY_NS);
}

#endif
