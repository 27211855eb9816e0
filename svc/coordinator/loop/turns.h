/* Turns of the coordinator's thread: which connection is served next, and which one is charged for
 * CPU time (K99, K100). */
#ifndef GRADPOOL_COORDINATOR_LOOP_TURNS_H
#define GRADPOOL_COORDINATOR_LOOP_TURNS_H

#include "svc/base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TURN_LEVELS 12
#define TURN_KEYS 5

/* CPU time, halved every second. */
struct usage {
    uint64_t used_ns, window;
};

enum party_kind {
    PARTY_OTHERS,      /* a tenant, or strangers of one address: has a budget */
    PARTY_OPERATORS,   /* served before others, within its budget */
    PARTY_AGGREGATORS, /* served before others */
};

/* A party shares the thread with other parties; its connections share its part. */
struct party {
    struct list link; /* node of turns.parties while a turn waits */
    struct list levels[TURN_LEVELS];
    size_t waiting;
    uint64_t window; /* window of the last shift of `levels` */
    struct usage usage;
    enum party_kind kind;
    uint32_t budget_percent; /* most of the thread's time while others wait; 100: no bound */
    uint64_t cpu_ns;         /* charged since the start */
};

/* Embedded in an object that takes turns: a connection, a listening socket. */
struct turn {
    struct list link; /* node of a level of its party while it waits */
    struct party *party;
    struct usage usage;
    uint64_t cpu_ns; /* charged since turn_init() */
    void (*take)(struct turn *turn);
};

struct turns {
    struct list parties;
    uint64_t served_ns[TURN_KEYS]; /* end of the last turn of each key */
    struct turn *payer;            /* charged from `since_ns` on; NULL: the service */
    uint64_t since_ns;
};

void turns_init(struct turns *turns);
void party_init(struct party *party, enum party_kind kind, uint32_t budget_percent);
/* Requires that no turn of the party waits. */
void party_fini(struct party *party);
void turn_init(struct turn *turn, struct party *party, void (*take)(struct turn *turn));
/* Ends the turn: it does not wait, and is not charged any more. */
void turn_fini(struct turns *turns, struct turn *turn);

/* Lets the turn wait, if it does not yet. */
void turn_wait(struct turns *turns, struct turn *turn);
bool turn_waits(const struct turn *turn);
/* Moves the turn to another party, which is charged from then on. */
void turn_join(struct turns *turns, struct turn *turn, struct party *party);

/* Time at which the next turn may be taken; 0: now; UINT64_MAX: no turn waits. */
uint64_t turns_due_ns(struct turns *turns, uint64_t now_ns);
/* Takes one turn, if one may be taken now. */
void turns_take(struct turns *turns, uint64_t now_ns);

/* Charges `payer` from now on. Returns the one charged until now. */
struct turn *turns_bill(struct turns *turns, struct turn *payer);

#endif
