/* Aggregator processes and their lanes: state, connection, end. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H

#include "svc/coordinator/peer/peer.h"
#include "svc/coordinator/store/store.h"

#define AGGREGATOR_NAME_BYTES 128

enum lane_use {
    LANE_OPEN,
    LANE_CLOSING,  /* tasks move away, and no task is placed */
    LANE_PARKED,   /* empty; no task is placed until the lane opens */
    LANE_WITHHELD, /* drained by an operator: no task is placed until the lane is given back */
};

struct lane {
    uint32_t id, index, core, pu;
    int32_t numa;
    uint64_t memory_bytes;
    char *shm, *ofi;
    struct aggregator *aggregator;
    enum lane_use use; /* not stored: every lane is open after a restart */
    uint32_t leaving;  /* jobs whose tasks growth moves away */
    uint32_t arriving; /* moves to this lane under way: it only looks empty */
    /* Busy time of the lane at the last look of growth, and when the figure came. */
    uint64_t worked_ns, worked_at_ns;
    /* Busy share of the lane between the last two looks of growth. */
    uint64_t load_ppm;
    uint64_t load_bytes;              /* bytes of all pieces */
    uint32_t jobs, pieces, planned;   /* planned: pieces of the declare under way */
    uint64_t ranks;                   /* sum over the pieces of the workers of their jobs */
    uint64_t piece_bytes, rank_bytes; /* memory of a piece, of a rank of a piece; 0: not known */
    /* Speed of the network interface of the host, shared with its other lanes; 0: not known. */
    uint64_t network_bytes_per_s;
    uint64_t shared_ns;   /* when several jobs last had pieces here; 0: never */
    uint64_t withheld_by; /* number of the drain that withholds the lane */
    /* When rows of jobs last came: later replies had none, since no row had changed (K61). */
    uint64_t rows_ns;
};

enum aggregator_state { AGGREGATOR_UP, AGGREGATOR_AWAY, AGGREGATOR_LOST };

struct aggregator {
    struct list link;
    struct service *service;
    uint32_t id, pid, slot; /* slot 0: joined by hand */
    uint64_t incarnation, identity;
    char *node;
    enum aggregator_state state;
    bool is_stopping; /* a drain was requested, or will be */
    struct peer *peer;
    struct leaving *leaving; /* the request to end; NULL: there is none */
    uint32_t former_slot;    /* slot before it left to end; 0: none */
    struct source process;   /* pidfd, if the process runs on this host */
    struct timer timer;      /* away: until lost; lost: until freed */
    uint64_t pinged_ns;      /* when the unanswered ping was sent; 0: none */
    uint32_t periods_silent; /* silent periods in a row */
    uint64_t silent_ns;      /* total length of those periods */
    /* End of the time in which no piece gets this replica holder, which had no room or could not
     * reach a lane. */
    uint64_t unfit_until_ns;
    struct list calls;
    struct lane *lanes;
    size_t lanes_count;
    envelope *stats;      /* last StatsReply, busy time corrected (busy_time.c) */
    envelope *counted;    /* last StatsReply, as the lanes sent it */
    uint64_t measured_ns; /* arrival of the last StatsReply */
};

/* Creates an aggregator, not listed or stored yet, with room for `lanes_max` lanes, which never
 * move in memory. NULL: no memory. */
struct aggregator *aggregator_create(struct service *s, uint32_t id, const char *node,
                                     size_t lanes_max);
int aggregator_add_lane(struct aggregator *a, uint32_t id, const WIRE(LaneOffer) * offer);
void aggregator_destroy(struct aggregator *a);
const char *aggregator_state_name(const struct aggregator *a);

/* Opens a pidfd for the process, so that its end is an event, if the process runs on this host. */
void aggregator_watch(struct aggregator *a);
/* Makes `p` the control connection; the aggregator is up. */
void aggregator_attach(struct aggregator *a, struct peer *p);
/* Requests that the aggregator finishes its open rounds and ends. */
void aggregator_drain(struct aggregator *a);
/* Like aggregator_drain(); `loses` is a sentence for its log about jobs that lose state. */
void aggregator_drain_losing(struct aggregator *a, const char *loses);
/* Handles an aggregator that missed its pings for the time allowed: kills a local one, counts
 * another as lost. */
void aggregator_hung(struct aggregator *a);
/* Handles the goodbye of an aggregator whose lanes are closed. */
void aggregator_left(struct aggregator *a);
/* Handles the end of the control connection; the aggregator is lost after `grace_ns`. */
void aggregator_away(struct aggregator *a, uint64_t grace_ns);
/* Time that the aggregator may spend without a control connection while this service runs (K4). */
uint64_t aggregator_grace_ns(const struct aggregator *a);
void aggregator_put(const struct aggregator *a);
int aggregator_restore(struct service *s, const struct store_aggregator *row);
int lane_restore(struct service *s, const struct store_lane *row);

#endif
