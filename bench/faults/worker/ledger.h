/* What the members of an elastic job say to each other, beside the service: of which gradients the
 * result of each round was. All who have a result of one round must name the same ones. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_LEDGER_H
#define GRADPOOL_BENCH_FAULTS_WORKER_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LEDGER_RANKS 4
#define LEDGER_ROUNDS 1024 /* members are a round apart at most */

/* Which gradient a rank gave: its count-th since it came for the coming-th time. Both from 1; 0: it
 * gave none. */
struct ledger_push {
    uint32_t coming, count;
};

/* What one member has seen of all: the newest push of each rank, and who was in the last round. */
struct trail {
    bool began;
    struct ledger_push last[LEDGER_RANKS];
    bool was_there[LEDGER_RANKS];
};

/* Goes on to the round of these pushes (count 0: not there). False: a push was in two rounds, one
 * was left out, or who came again did not begin at its first. The first round of all may be any. */
bool trail_follow(struct trail *trail, const struct ledger_push pushes[LEDGER_RANKS]);

/* Shared. */
struct ledger {
    uint64_t grace_ns; /* in which a member that is out of its job sees that it is, and ends */
    _Atomic uint32_t present[LEDGER_RANKS]; /* whose process lives: its coming; 0: nobody's */
    _Atomic uint64_t rounds[LEDGER_RANKS][LEDGER_ROUNDS];
};

/* `author`, who took part, tells of which pushes a result was. False: somebody has a result of one
 * of these pushes that is of others, and has not ended within the grace. One that ends may have a
 * result that nobody else has: the round is done again without it. */
bool ledger_note(struct ledger *ledger, uint32_t author,
                 const struct ledger_push pushes[LEDGER_RANKS]);

#endif
