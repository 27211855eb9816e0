/* Aggregator processes and their lanes: state, connection and end. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_AGGREGATOR_H

#include "svc/coordinator/peer/peer.h"
#include "svc/coordinator/store/store.h"

#define AGGREGATOR_NAME_BYTES 128

enum lane_use {
    LANE_OPEN,
    LANE_CLOSING, /* tasks are moving to other lanes, and no new task is placed on this lane */
    LANE_PARKED,  /* the lane has no tasks and receives none until growth opens the lane again */
    /* drained by an operator; the lane receives no tasks until the operator undoes the drain */
    LANE_WITHHELD,
};

struct lane {
    uint32_t id, index, core, pu;
    int32_t numa;
    uint64_t memory_bytes;
    char *shm, *ofi;
    struct aggregator *aggregator;
    enum lane_use use; /* not stored: every lane is open after a restart */
    uint32_t leaving;  /* number of jobs whose tasks growth is moving to other lanes */
    uint32_t arriving; /* number of moves to this lane that are in progress */
    /* Busy time of the lane at the last measurement by growth, and the time of this measurement. */
    uint64_t worked_ns, worked_at_ns;
    /* Busy share of the lane between the last two measurements by growth, in millionths of the
     * time. */
    uint64_t load_ppm;
    uint64_t load_bytes; /* sum of the sizes of all pieces on the lane, in bytes */
    /* `shards`: number of pieces that are shards of tables. `planned`: number of pieces that the
     * declare now being handled will add. */
    uint32_t jobs, pieces, shards, planned;
    uint64_t ranks; /* number of workers that the lane serves, summed over its pieces */
    /* bytes of memory for each piece, and for each rank of a piece; 0: unknown */
    uint64_t piece_bytes, rank_bytes;
    /* Speed of the host's network interface, which all lanes of the host share; 0: unknown. */
    uint64_t network_bytes_per_s;
    uint64_t shared_ns; /* last time at which the lane had pieces of more than one job; 0: never */
    uint64_t withheld_by; /* number of the drain order that has closed this lane for new tasks */
    /* Time of the last reply that contained rows about jobs. Later replies have no rows, because no
     * row has changed (K61). */
    uint64_t rows_ns;
};

enum aggregator_state { AGGREGATOR_UP, AGGREGATOR_AWAY, AGGREGATOR_LOST };

struct aggregator {
    struct list link;
    struct service *service;
    uint32_t id, pid, slot; /* slot of a local aggregator; 0: started by hand */
    uint64_t incarnation, identity;
    char *node;
    enum aggregator_state state;
    bool is_stopping; /* a drain was requested, or the service is about to request it */
    struct peer *peer;
    struct leaving *leaving; /* state of the aggregator's planned end; NULL: no end is planned */
    uint32_t former_slot;    /* slot that the aggregator used before it began to leave; 0: none */
    struct source process;   /* pidfd, if the process runs on this host */
    /* In state AWAY: time at which the aggregator is lost. In state LOST: time at which the struct
     * is freed. */
    struct timer timer;
    uint64_t pinged_ns;      /* time of the ping that is not answered yet; 0: none */
    uint32_t periods_silent; /* number of consecutive ping periods without an answer */
    uint64_t silent_ns;      /* total length of the silent periods */
    /* The aggregator is not chosen as a replica holder before this time, because it had no memory
     * for replicas, or could not connect to a lane. */
    uint64_t unfit_until_ns;
    struct list calls;
    struct lane *lanes;
    size_t lanes_count;
    envelope *stats;      /* last StatsReply, with busy times corrected to CPU time (busy_time.c) */
    envelope *counted;    /* last StatsReply as received */
    uint64_t measured_ns; /* time at which the last StatsReply arrived */
};

/* Creates an aggregator that is neither in the list of aggregators nor in the store. `lanes_max`:
 * capacity for lanes, whose addresses never change. Returns NULL if memory is missing. */
struct aggregator *aggregator_create(struct service *s, uint32_t id, const char *node,
                                     size_t lanes_max);
int aggregator_add_lane(struct aggregator *a, uint32_t id, const WIRE(LaneOffer) * offer);
void aggregator_destroy(struct aggregator *a);
const char *aggregator_state_name(const struct aggregator *a);

/* Opens a pidfd if the process runs on this host, so that the event loop learns when the process
 * ends. */
void aggregator_watch(struct aggregator *a);
/* Makes `p` the control connection of the aggregator, which is in state UP afterwards. */
void aggregator_attach(struct aggregator *a, struct peer *p);
/* Requests that the aggregator completes all open rounds and then ends. */
void aggregator_drain(struct aggregator *a);
/* Like aggregator_drain(). `loses` is a sentence for the aggregator's log that names the jobs whose
 * state will be lost. */
void aggregator_drain_losing(struct aggregator *a, const char *loses);
/* Handles an aggregator whose silence has reached its limit. A local process is killed; any other
 * aggregator is lost. */
void aggregator_hung(struct aggregator *a);
/* Called when an aggregator whose lanes are closed has sent Goodbye. A remote aggregator is lost at
 * once, a local aggregator when its process has ended. */
void aggregator_left(struct aggregator *a);
/* Handles the end of the control connection. The aggregator is lost if no new connection arrives
 * within `grace_ns`. */
void aggregator_away(struct aggregator *a, uint64_t grace_ns);
/* Returns the time after which an aggregator without a control connection is lost (K4). */
uint64_t aggregator_grace_ns(const struct aggregator *a);
void aggregator_put(const struct aggregator *a);
int aggregator_restore(struct service *s, const struct store_aggregator *row);
int lane_restore(struct service *s, const struct store_lane *row);

#endif
