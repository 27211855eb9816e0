/* Shared memory in which the members of an elastic job compare, without the service, which
 * gradients are in each result. All members that received a round's result must record the same
 * gradients. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_LEDGER_H
#define GRADPOOL_BENCH_FAULTS_WORKER_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LEDGER_RANKS 4
/* number of stored rounds; this number suffices, because members differ by at most one round */
#define LEDGER_ROUNDS 1024

/* A gradient of a rank. `coming`: number of the rank's join, from 1. `count`: number of the push
 * since that join, from 1; 0: no push. */
struct ledger_push {
    uint32_t coming, count;
};

/* A member's record of all ranks: the newest push of each rank, and the set of ranks in the last
 * round. */
struct trail {
    bool began;
    struct ledger_push last[LEDGER_RANKS];
    bool was_there[LEDGER_RANKS];
};

/* Records the pushes of the next round (count 0: the rank was not in the round). False: a push was
 * in two rounds, a push is missing, or a rank that joined again did not begin with its first push.
 * The first recorded round may have any pushes. */
bool trail_follow(struct trail *trail, const struct ledger_push pushes[LEDGER_RANKS]);

/* The ledger is in memory that all members share. */
struct ledger {
    uint64_t grace_ns; /* time within which a removed member detects its removal and ends */
    /* number of joins of each rank's running process; 0: none runs */
    _Atomic uint32_t present[LEDGER_RANKS];
    _Atomic uint64_t rounds[LEDGER_RANKS][LEDGER_ROUNDS];
};

/* Records the pushes of a result of `author`, which is in the round. False: another member has
 * recorded one of these pushes in a different set of pushes, and does not end within `grace_ns`. A
 * member that is ending may have a result that no other member has, because the others repeat the
 * round without that member. */
bool ledger_note(struct ledger *ledger, uint32_t author,
                 const struct ledger_push pushes[LEDGER_RANKS]);

#endif
