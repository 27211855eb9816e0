/* Aggregator processes and their lanes as the coordinator sees them, and requests to them. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H

#include "svc/coordinator/peer/peer.h"
#include "svc/coordinator/store/store.h"

#define AGGREGATOR_NAME_BYTES 128

enum lane_use {
    LANE_OPEN,
    LANE_CLOSING,  /* is being emptied: nothing new is placed there */
    LANE_PARKED,   /* nothing is on it, and nothing is placed there before it opens */
    LANE_WITHHELD, /* an operator has drained it: as closing or parked, until he gives it back */
};

struct lane {
    uint32_t id, index, core, pu;
    int32_t numa;
    uint64_t memory_bytes;
    char *shm, *ofi;
    struct aggregator *aggregator;
    enum lane_use use;                /* not stored: all are open after a restart */
    uint32_t leaving;                 /* jobs whose tasks are on their way from it (growth) */
    uint32_t arriving;                /* moves on their way to it: it only looks empty */
    uint64_t worked_ns, worked_at_ns; /* when it was last looked at for growth ... */
    uint64_t load_ppm;                /* ... and its busy time since the look before */
    uint64_t load_bytes;              /* of all pieces on it */
    uint32_t jobs, pieces, planned;   /* planned: by the declare that is worked on */
    uint64_t ranks;                   /* of all pieces together */
    uint64_t piece_bytes, rank_bytes; /* what each costs it; 0: not known */
    uint64_t network_bytes_per_s; /* of its host's interface, which others share; 0: not known */
    uint64_t shared_ns;           /* when more than one job last had pieces on it; 0: never */
    uint64_t withheld_by;         /* the order of a drain */
    uint64_t rows_ns;             /* when its figures of jobs last came: later ones are the same */
};

enum aggregator_state { AGGREGATOR_UP, AGGREGATOR_AWAY, AGGREGATOR_LOST };

struct aggregator {
    struct list link;
    struct service *service;
    uint32_t id, pid, slot; /* slot 0: not ours to restart */
    uint64_t incarnation, identity;
    char *node;
    enum aggregator_state state;
    bool is_stopping; /* is to drain and go, or has been asked to */
    struct peer *peer;
    struct leaving *leaving; /* it is asked to end; NULL: it stays */
    uint32_t former_slot;    /* the number of the slot that it had before; 0: none */
    struct source process;   /* pidfd, when it runs on this host */
    struct timer timer;      /* away: until it is lost; lost: until it is forgotten */
    uint64_t pinged_ns;      /* when the ping was sent that it has not answered; 0: none */
    uint32_t periods_silent; /* in a row */
    uint64_t silent_ns;      /* their length together */
    uint64_t unfit_until_ns; /* as a keeper of copies: it had no room, or did not reach a lane */
    struct list calls;
    struct lane *lanes;
    size_t lanes_count;
    envelope *stats;      /* its last StatsReply, as it is shown ... */
    envelope *counted;    /* ... and as its lanes have counted: busy_time.c */
    uint64_t measured_ns; /* when that came */
};

/* In no list and not stored yet; room for `lanes_max` lanes, which never move. */
struct aggregator *aggregator_create(struct service *s, uint32_t id, const char *node,
                                     size_t lanes_max);
int aggregator_add_lane(struct aggregator *a, uint32_t id, const WIRE(LaneOffer) * offer);
void aggregator_destroy(struct aggregator *a);
const char *aggregator_state_name(const struct aggregator *a);

/* From now on the process's end is noticed at once, if it runs on this host. */
void aggregator_watch(struct aggregator *a);
/* It has this connection now, and is up. */
void aggregator_attach(struct aggregator *a, struct peer *p);
/* Asks it to finish its open rounds and end. */
void aggregator_drain(struct aggregator *a);
/* The same, with what is lost with it, as a text for its log. */
void aggregator_drain_losing(struct aggregator *a, const char *loses);
/* It has answered no ping for the time allowed. */
void aggregator_hung(struct aggregator *a);
/* It has said goodbye, with its lanes closed. */
void aggregator_left(struct aggregator *a);
/* Its control connection is gone. */
void aggregator_away(struct aggregator *a, uint64_t grace_ns);
/* How long it may be without its connection while this service runs (K4). */
uint64_t aggregator_grace_ns(const struct aggregator *a);
void aggregator_put(const struct aggregator *a);
int aggregator_restore(struct service *s, const struct store_aggregator *row);
int lane_restore(struct service *s, const struct store_lane *row);

#endif
