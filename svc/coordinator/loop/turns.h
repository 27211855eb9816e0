/* Turns of the coordinator's thread: who is served next, and who has paid for what (K99, K100). */
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
    PARTY_OPERATORS,   /* before all others, unless it is over its budget */
    PARTY_AGGREGATORS, /* before all others */
};

/* Shares the thread with other parties; its turns share its part. */
struct party {
    struct list link; /* in turns.parties while a turn of it waits */
    struct list levels[TURN_LEVELS];
    size_t waiting;
    uint64_t window; /* in which `levels` was shifted last */
    struct usage usage;
    enum party_kind kind;
    uint32_t budget_percent; /* of the thread's time, while others want it; 100: all of it */
    uint64_t cpu_ns;         /* since the start */
};

/* Embedded in what takes turns: a connection, a listening socket. */
struct turn {
    struct list link; /* in a level of its party while it waits */
    struct party *party;
    struct usage usage;
    uint64_t cpu_ns; /* since it began */
    void (*take)(struct turn *turn);
};

struct turns {
    struct list parties;
    uint64_t served_ns[TURN_KEYS]; /* when the last turn of each key was over */
    struct turn *payer;            /* of the time since `since_ns`; NULL: the service */
    uint64_t since_ns;
};

void turns_init(struct turns *turns);
void party_init(struct party *party, enum party_kind kind, uint32_t budget_percent);
/* No turn of it waits any more. */
void party_fini(struct party *party);
void turn_init(struct turn *turn, struct party *party, void (*take)(struct turn *turn));
/* The turn goes: it neither waits nor pays any more. */
void turn_fini(struct turns *turns, struct turn *turn);

/* Waits from now on, unless it does already. */
void turn_wait(struct turns *turns, struct turn *turn);
bool turn_waits(const struct turn *turn);
/* The turn belongs to another party from now on, and pays there. */
void turn_join(struct turns *turns, struct turn *turn, struct party *party);

/* When the next turn may be taken; 0: now; UINT64_MAX: none waits. */
uint64_t turns_due_ns(struct turns *turns, uint64_t now_ns);
/* Takes one, if one may be taken. */
void turns_take(struct turns *turns, uint64_t now_ns);

/* `payer` pays for what the thread does from now on. Returns who paid until now. */
struct turn *turns_bill(struct turns *turns, struct turn *payer);

#endif
