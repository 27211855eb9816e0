/* Shared memory in which the members of an elastic job compare, beside the service, which gradients
 * each result has. All members with a result of a round must name the same gradients. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_LEDGER_H
#define GRADPOOL_BENCH_FAULTS_WORKER_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LEDGER_RANKS 4
#define LEDGER_ROUNDS 1024 /* members are a round apart at most */

/* A gradient of a rank: number of the rank's joins and number of its pushes since then, both from
 * 1; 0: the rank pushed none. */
struct ledger_push {
    uint32_t coming, count;
};

/* A member's view of all ranks: the newest push of each, and which ranks were in the last round. */
struct trail {
    bool began;
    struct ledger_push last[LEDGER_RANKS];
    bool was_there[LEDGER_RANKS];
};

/* Enters the pushes of the next round (count 0: the rank was not in the round). False: a push was
 * in two rounds, a push was left out, or a rank that joined again did not begin with its first
 * push. The first entered round may have any pushes. */
bool trail_follow(struct trail *trail, const struct ledger_push pushes[LEDGER_RANKS]);

/* In memory shared by all members. */
struct ledger {
    uint64_t grace_ns; /* time in which a member that was removed from the job notices and ends */
    /* number of joins of each rank's live process; 0: none lives */
    _Atomic uint32_t present[LEDGER_RANKS];
    _Atomic uint64_t rounds[LEDGER_RANKS][LEDGER_ROUNDS];
};

/* Enters the pushes of a result of `author`, which is in the round. False: another member has a
 * result with one of these pushes among different ones, and has not ended within the grace. A
 * member about to end may have a result that no other member has: the round is repeated without the
 * member. */
bool ledger_note(struct ledger *ledger, uint32_t author,
                 const struct ledger_push pushes[LEDGER_RANKS]);

#endif
