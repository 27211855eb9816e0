/* Aggregator processes and their lanes: state, connection, end. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H

#include "svc/coordinator/peer/peer.h"
#include "svc/coordinator/store/store.h"

#define AGGREGATOR_NAME_BYTES 128

enum lane_use {
    LANE_OPEN,
    LANE_CLOSING, /* tasks are moving away, and no task is placed */
    LANE_PARKED,  /* empty; no task is placed until the lane opens again */
    /* drained by an operator: no task is placed until the operator undoes the drain */
    LANE_WITHHELD,
};

struct lane {
    uint32_t id, index, core, pu;
    int32_t numa;
    uint64_t memory_bytes;
    char *shm, *ofi;
    struct aggregator *aggregator;
    enum lane_use use; /* Not stored: every lane is open after a restart. */
    uint32_t leaving;  /* number of jobs whose tasks growth is moving away */
    uint32_t arriving; /* number of moves to this lane in progress: an empty lane may not be idle */
    /* Busy time of the lane at growth's last measurement, and the time of that measurement. */
    uint64_t worked_ns, worked_at_ns;
    /* Busy share of the lane between growth's last two measurements. */
    uint64_t load_ppm;
    uint64_t load_bytes;            /* bytes of all pieces */
    uint32_t jobs, pieces, planned; /* `planned`: pieces of the declare in progress */
    uint64_t ranks; /* for each piece the number of its job's workers, summed over all pieces */
    /* memory of a piece, and of each rank of a piece; 0: unknown */
    uint64_t piece_bytes, rank_bytes;
    /* Speed of the host's network interface, which all lanes of the host share; 0: unknown. */
    uint64_t network_bytes_per_s;
    uint64_t shared_ns;   /* last time at which several jobs had pieces here; 0: never */
    uint64_t withheld_by; /* number of the drain that withholds this lane */
    /* Time of the last rows of jobs. Later replies had no rows, because no row had changed
     * (K61). */
    uint64_t rows_ns;
};

enum aggregator_state { AGGREGATOR_UP, AGGREGATOR_AWAY, AGGREGATOR_LOST };

struct aggregator {
    struct list link;
    struct service *service;
    uint32_t id, pid, slot; /* slot 0: started by hand */
    uint64_t incarnation, identity;
    char *node;
    enum aggregator_state state;
    bool is_stopping; /* a drain was requested, or soon will be */
    struct peer *peer;
    struct leaving *leaving; /* request to end; NULL: none */
    uint32_t former_slot;    /* slot before the aggregator left it in order to end; 0: none */
    struct source process;   /* pidfd, if the process runs on this host */
    /* While away: time until the aggregator is lost. When lost: time until it is freed. */
    struct timer timer;
    uint64_t pinged_ns;      /* time at which the unanswered ping was sent; 0: none */
    uint32_t periods_silent; /* number of silent periods in a row */
    uint64_t silent_ns;      /* total length of those periods */
    /* Until this time no piece gets this aggregator as replica holder, because it had no room or
     * could not connect to a lane. */
    uint64_t unfit_until_ns;
    struct list calls;
    struct lane *lanes;
    size_t lanes_count;
    envelope *stats;      /* last StatsReply, with corrected busy times (busy_time.c) */
    envelope *counted;    /* last StatsReply, unchanged */
    uint64_t measured_ns; /* time at which the last StatsReply arrived */
};

/* Creates an aggregator that is not listed or stored yet. There is room for `lanes_max` lanes,
 * whose addresses never change. NULL: no memory. */
struct aggregator *aggregator_create(struct service *s, uint32_t id, const char *node,
                                     size_t lanes_max);
int aggregator_add_lane(struct aggregator *a, uint32_t id, const WIRE(LaneOffer) * offer);
void aggregator_destroy(struct aggregator *a);
const char *aggregator_state_name(const struct aggregator *a);

/* Opens a pidfd if the process runs on this host, so that the end of the process is an event. */
void aggregator_watch(struct aggregator *a);
/* Makes `p` the control connection of the aggregator, which is up from then on. */
void aggregator_attach(struct aggregator *a, struct peer *p);
/* Sends the request to finish all open rounds and end. */
void aggregator_drain(struct aggregator *a);
/* Like aggregator_drain(). `loses` is a sentence for the aggregator's log about jobs that lose
 * state. */
void aggregator_drain_losing(struct aggregator *a, const char *loses);
/* Handles an aggregator that did not answer pings for the allowed time: kills a local process, and
 * counts any other as lost. */
void aggregator_hung(struct aggregator *a);
/* Handles the goodbye of an aggregator whose lanes are closed. */
void aggregator_left(struct aggregator *a);
/* Handles the end of the control connection; the aggregator is lost after `grace_ns`. */
void aggregator_away(struct aggregator *a, uint64_t grace_ns);
/* Returns the time that the aggregator may spend without a control connection while this service
 * runs (K4). */
uint64_t aggregator_grace_ns(const struct aggregator *a);
void aggregator_put(const struct aggregator *a);
int aggregator_restore(struct service *s, const struct store_aggregator *row);
int lane_restore(struct service *s, const struct store_lane *row);

#endif
