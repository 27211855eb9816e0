/* Turns on the coordinator's thread. The loop serves one connection in each turn, and charges the
 * turn with the CPU time that the service spends on it (K99, K100). */
#ifndef GRADPOOL_COORDINATOR_LOOP_TURNS_H
#define GRADPOOL_COORDINATOR_LOOP_TURNS_H

#include "svc/base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TURN_LEVELS 12
#define TURN_KEYS 5

/* CPU time that was used recently: the value is halved every second. */
struct usage {
    uint64_t used_ns, window;
};

enum party_kind {
    /* a tenant, or unidentified peers of one address; a budget limits the CPU time */
    PARTY_OTHERS,
    PARTY_OPERATORS,   /* operators; served before tenants unless they exceed their budget */
    PARTY_AGGREGATORS, /* aggregators; served before tenants */
};

/* A group of connections. Parties compete for the coordinator's thread. */
struct party {
    struct list link; /* node in turns.parties while a connection of the party waits */
    struct list levels[TURN_LEVELS];
    size_t waiting;
    uint64_t window; /* window in which `levels` were last shifted */
    struct usage usage;
    enum party_kind kind;
    /* largest share of the thread's time, in percent, while other parties wait; 100: no limit */
    uint32_t budget_percent;
    uint64_t cpu_ns; /* CPU time charged since the start */
};

/* A place in the queue for the thread. The struct is a member of the object that waits for service:
 * a connection or a listening socket. */
struct turn {
    struct list link; /* node in one of the party's levels while the turn waits */
    struct party *party;
    struct usage usage;
    uint64_t cpu_ns; /* CPU time charged since turn_init() */
    void (*take)(struct turn *turn);
};

struct turns {
    struct list parties;
    uint64_t served_ns[TURN_KEYS]; /* time at which the last turn of each class ended */
    /* The turn that is charged for the CPU time since `since_ns`. NULL: no connection is
     * charged. */
    struct turn *payer;
    uint64_t since_ns;
};

void turns_init(struct turns *turns);
void party_init(struct party *party, enum party_kind kind, uint32_t budget_percent);
/* Removes the party. None of its turns may be waiting. */
void party_fini(struct party *party);
void turn_init(struct turn *turn, struct party *party, void (*take)(struct turn *turn));
/* Removes the turn from its queue. No more CPU time is charged to the turn. */
void turn_fini(struct turns *turns, struct turn *turn);

/* Queues the turn to be served, if it is not queued yet. */
void turn_wait(struct turns *turns, struct turn *turn);
bool turn_waits(const struct turn *turn);
/* Moves the turn to another party, which is charged for the turn from then on. */
void turn_join(struct turns *turns, struct turn *turn, struct party *party);

/* Returns the time at which the next turn may be served; 0: now; UINT64_MAX: no turn waits. */
uint64_t turns_due_ns(struct turns *turns, uint64_t now_ns);
/* Serves the next turn, if any turn may be served at `now_ns`. */
void turns_take(struct turns *turns, uint64_t now_ns);

/* Charges CPU time to `payer` from now on. Returns the turn that was charged until now. */
struct turn *turns_bill(struct turns *turns, struct turn *payer);

#endif
