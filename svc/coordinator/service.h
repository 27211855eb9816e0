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

#define STRANGER_PARTIES 16

struct service {
    const struct peer_hooks *on_peer;
    const struct aggregator_hooks *on_aggregator;
    const struct job_hooks *on_job;
    const struct service_hooks *on_service;
    struct coordinator_options options; /* strings owned */
    struct loop loop;
    struct store *store;
    struct store_service numbers;
    struct provisioner *provisioner;
    int lock_fd, spare_fd;
    struct listener tcp, local;
    struct party operators, aggregators_party, door, strangers[STRANGER_PARTIES];
    struct source signals;
    struct source display_source;
    struct timer display_timer, show_timer;
    uint64_t ping_period_ns; /* length of the period that goes on */
    uint64_t shown_ns;       /* when the display was shown something last */
    uint64_t show_pause_ns;  /* from there to the next time, unless nothing trains */
    uint32_t idle_shows;     /* snapshots in a row while nothing trained */
    struct timer drain_timer, give_up_timer, retry_timer, ping_timer;
    struct timer look_timer, measure_timer, leavers_timer;
    struct timer fit_timer;     /* until the last keeper that was relieved is fit again */
    bool tells_leavers;         /* the last of them runs */
    uint64_t scaled_ns;         /* when growth had its last window */
    uint64_t measure_wait_ns;   /* until the next look at what trains */
    uint32_t idle_looks;        /* in a row that saw nothing train */
    struct list frames_waiting; /* peers whose long messages wait for memory (frames.c) */
    uint64_t frame_bytes;       /* of long messages that are being received */
    struct list visitors;       /* peers, who has been silent longest first */
    size_t visitors_count;
    size_t outer_descriptors; /* of connections over TCP, and of workers that are watched */
    struct list peers, waits, tenants, jobs, aggregators, migrations, orders, savings, timelines;
    struct list profiles;  /* how jobs ran before */
    struct list farewells; /* processes that leave their slots: fleet/farewell.c */
    struct timer leave_timer;
    void (*leave_done)(struct service *s); /* all that end with it leave: leaving.c */
    uint64_t profiles_turn;
    struct looks looks;
    struct scaling scaling;
    struct events events;
    struct settings settings; /* filled once */
    struct slot *slots;
    size_t slots_count;
    uint64_t next_id; /* of calls and waits */
    uint64_t started_ns;
    enum service_phase phase;
    const char *takes_along; /* why local aggregators do not outlive it; NULL: they do */
    bool ends_container;     /* the end of this process is that of all processes there */
    int ended_by;            /* 0: in order; a second signal; a negative errno: could not go on */
    char node[HOST_NAME_MAX + 1];
    char endpoint_url[300];
    char data_host[256]; /* for local lanes; "": they choose */
};

struct coordinator {
    struct service service;
};

/* Of a task, too. */
static inline uint64_t piece_bytes_max(const struct service *s)
{
    uint64_t named = s->options.piece_bytes_max;
    return named ? named : PACKER_PIECE_BYTES_MAX;
}

/* Work that memory or the store did not allow is tried again, of all jobs, after RETRY_NS. */
static inline void service_retry_later(struct service *s)
{
    timer_start(&s->loop, &s->retry_timer, clock_now_ns() + RETRY_NS);
}

#endif
