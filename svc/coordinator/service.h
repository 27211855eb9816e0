/* The service as a whole: what the coordinator's files share. README.md has its invariants (K1 to
 * K8) and says which file owns what. */
#ifndef GRADPOOL_COORDINATOR_SERVICE_H
#define GRADPOOL_COORDINATOR_SERVICE_H

#include "svc/base/clock.h"
#include "svc/coordinator/coordinator.h"
#include "svc/coordinator/fleet/fleet.h"
#include "svc/coordinator/fleet/looks.h"
#include "svc/coordinator/growth/scaling.h"
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

void service_put_numbers(struct service *s);
/* Work that memory or the store did not allow is tried again, of all jobs, after RETRY_NS. */
void service_retry_later(struct service *s);

/* --- stopping.c --- */

/* Ends in order, soon, because it cannot go on; the reason has been logged. */
void service_give_up(struct service *s, int code);
/* After an aggregator or a local process has gone: the end of a drain, perhaps. */
void service_check_drained(struct service *s);

/* --- fleet/ping.c --- */

/* Pings the aggregators from now on. */
void liveness_start(struct service *s);
/* `a` is up: from now on periods are as short as it needs them. */
void liveness_joined(struct aggregator *a);
/* Something came from it. */
void liveness_heard(struct aggregator *a);
/* How long it has been silent; 0: it is not. */
uint64_t liveness_silent_ns(const struct aggregator *a);

/* --- session/host_silence.c --- */

void silence_start(struct service *s);
/* Looks from now on whether the host of a peer that is open answers, if that is a worker's. */
void silence_watch(struct peer *p);

/* --- session/goodbye.c --- */

void leavers_start(struct service *s);

/* --- view/status.c --- */

/* The view of an operator, but for ranks and limits of jobs: a StatusReply and a JobsReply, the
 * caller's. Figures are the last known ones. -ENOMEM. */
int view_build(struct service *s, envelope **ret_status, envelope **ret_jobs);
/* A peer that waits for this look at aggregators, or an earlier one, is answered in its turn. */
void view_look_over(struct service *s, uint64_t look);
/* One request of the peer that is ready; false: there is none. */
bool view_answer(struct peer *p);

/* --- order/order.c --- */

void orders_destroy(struct service *s);

/* --- advertise.c --- */

/* Fills endpoint_url and data_host, once we listen. */
int advertise_choose(struct service *s, struct err *err);

/* --- state_dir.c --- */

/* As others must be told of it: absolute. `path` may not exist yet. */
int state_dir_whole(const char *path, char *buffer, size_t buffer_bytes, struct err *err);
/* Creates what is missing. -EPERM: others can write it, or replace it as a whole. */
int state_dir_create(const char *path, struct err *err);
/* Lets the group through the state dir (mode 0710) to the socket in it. -EINVAL: no such group;
 * -EPERM: this user may not give them to it. */
int state_dir_admit(const char *path, const char *socket, const char *group, struct err *err);
/* -EBUSY, naming who holds it. The descriptor is the lock. */
int state_dir_lock(const char *path, int *ret_fd, struct err *err);

#endif
