/* Clocks of a table on one lane, and the updates that a shard contains. The functions only change
 * the structs of this header. All functions must run on the lane's thread.
 *
 * The clock of a member is the number of its present iteration, from 1; the member has ended all
 * smaller clocks. The minimum is the smallest clock of the members. Neither a clock nor the minimum
 * ever decreases: a late member enters at the minimum or above (A81). */
#ifndef GRADPOOL_LANE_TABLE_CLOCK_H
#define GRADPOOL_LANE_TABLE_CLOCK_H

#include "svc/lane/table/allowance.h"

#define CLOCK_NONE 0 /* stands for the clock of a rank that is no member */
#define CLOCK_FIRST 1

/* Consistency of a table. The values are the same in gradpool.h and in messages. */
enum table_consistency {
    TABLE_BSP = 1, /* bulk synchronous: each row has one update for each clock */
    TABLE_SSP = 2, /* stale synchronous: at most `staleness` clocks ahead of the slowest member */
    TABLE_ASP = 3, /* asynchronous */
};

/* The caller may read `minimum`, `largest` and `members`; the other fields are private to
 * clock.c. */
struct table_clocks {
    struct allowance *allowance;
    uint64_t *clocks; /* indexed by rank; CLOCK_NONE: no member */
    uint32_t ranks, members;
    uint32_t at_minimum; /* number of members whose clock is the minimum */
    uint64_t minimum;    /* smallest clock of the members; without members, the last such clock */
    /* largest clock that any member has had; the next stage begins at this clock or later */
    uint64_t largest;
};

struct clock_rank {
    uint32_t rank;
    uint64_t clock;
};

/* Creates the clocks of ranks 0 to `ranks` - 1, without members. `first`: smallest clock at which a
 * member may enter; 1 for a new table. Returns 0 or an error of allowance_alloc(). */
int table_clocks_init(struct table_clocks *clocks, struct allowance *allowance, uint32_t ranks,
                      uint64_t first);
/* Frees the clocks. A zeroed struct is allowed. */
void table_clocks_fini(struct table_clocks *clocks);

/* Adds the rank as a member whose first iteration is `clock`. Returns 0. -EINVAL: no such rank, or
 * no such clock; -EALREADY: the rank is a member; -ERANGE: the clock is below the minimum. After an
 * error nothing has changed. */
int table_clocks_enter(struct table_clocks *clocks, uint32_t rank, uint64_t clock);

/* Records that the member has ended clock `ended` and all earlier clocks. An announcement that is
 * repeated, or that arrives after an announcement of a later clock, has no effect (W3). Returns 1
 * if the minimum rose, else 0. -EINVAL: the rank is no member, or no clock can follow. */
int table_clocks_end(struct table_clocks *clocks, uint32_t rank, uint64_t ended);

/* Removes a member that left or was lost. Returns 1 if the minimum rose, else 0. -EINVAL: the rank
 * is no member. */
int table_clocks_leave(struct table_clocks *clocks, uint32_t rank);

/* Makes exactly the ranks of the set (RANKS_WORDS words) members, all in `clock`. `clock` is at
 * least the minimum and at least the largest clock. */
void table_clocks_regroup(struct table_clocks *clocks, const uint64_t *ranks, uint64_t clock);

/* Returns the clock of a rank; CLOCK_NONE: no member, or no such rank. */
uint64_t table_clocks_of(const struct table_clocks *clocks, uint32_t rank);

/* Finds the members whose clock is less than `clock`, for the text of an error about a wait for
 * this clock. Writes at most `most` of them, in order of rank. Returns the number of all such
 * members, which may exceed `most`. */
uint32_t table_clocks_behind(const struct table_clocks *clocks, uint64_t clock,
                             struct clock_rank *ret_ranks, uint32_t most);

/* Returns whether every member has ended `clock`: the pushes of that clock are complete. */
bool table_clocks_have_ended(const struct table_clocks *clocks, uint64_t clock);

/* ---- what has been applied ---- */

/* Progress of a shard with TABLE_BSP. All keys of the clocks before `clock` are applied; of `clock`
 * itself, the mixed keys below `next` are applied. A new shard is at {CLOCK_FIRST, 0}. */
struct shard_progress {
    uint64_t clock, next;
};

/* Progress of one rank in a shard with TABLE_SSP or TABLE_ASP, in sequence numbers of the rank's
 * pushes. A restarted rank begins a later session, in which pushes count from 1 again. A new rank
 * is at {0, {1, 0}}. */
struct rank_progress {
    uint64_t session;
    struct shard_progress pushes; /* `clock` is a sequence number here */
};

/* Returns whether the shard contains the key's update of this clock already. */
bool shard_progress_covers(const struct shard_progress *progress, uint64_t clock, uint64_t mixed);
/* Records that the keys up to `last` of the present clock are applied. `last` is at least
 * progress->next. */
void shard_progress_advance(struct shard_progress *progress, uint64_t last);
/* Records that all keys of the present clock are applied; the next clock begins. */
void shard_progress_finish(struct shard_progress *progress);
/* Continues in `session`. A session that is later than the last session begins with its first push.
 * Returns 0, or -ESTALE for an earlier session; nothing has changed then. */
int rank_progress_enter(struct rank_progress *progress, uint64_t session);

/* ---- consistency ---- */

/* Returns whether a push of `clock` may be applied. With TABLE_BSP, all members must have ended
 * this clock, and all earlier clocks must be applied. Otherwise a push may always be applied. */
bool table_push_may_start(const struct table_clocks *clocks, enum table_consistency consistency,
                          const struct shard_progress *progress, uint64_t clock);
/* Returns whether a pull at `clock` may be answered. With TABLE_BSP, the previous clock must be
 * applied. With TABLE_SSP, the minimum must be at least clock - staleness; the answer then includes
 * the pushes of all members up to clock - staleness - 1, and perhaps later pushes. With TABLE_ASP,
 * a pull may always be answered. */
bool table_pull_may_start(const struct table_clocks *clocks, enum table_consistency consistency,
                          uint32_t staleness, const struct shard_progress *progress,
                          uint64_t clock);

#endif
