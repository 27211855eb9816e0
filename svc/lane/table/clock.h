/* Clocks of a table on one lane, and what has been applied to a shard. Pure; thread: the lane's.
 *
 * The clock of a member is the number of the iteration that the member is in, from 1: all smaller
 * ones have ended. The minimum is the smallest clock of the members. A clock never goes back,
 * neither does the minimum: a late member enters at the minimum or above (A81). */
#ifndef GRADPOOL_LANE_TABLE_CLOCK_H
#define GRADPOOL_LANE_TABLE_CLOCK_H

#include "svc/lane/table/allowance.h"

#define CLOCK_NONE 0 /* clock of a rank that is no member */
#define CLOCK_FIRST 1

/* The numbers are those of the wire and of gradpool.h. */
enum table_consistency {
    TABLE_BSP = 1, /* bulk synchronous: one update a row and clock */
    TABLE_SSP = 2, /* stale synchronous: at most `staleness` clocks ahead of the slowest member */
    TABLE_ASP = 3, /* asynchronous */
};

/* The caller reads `minimum`, `largest` and `members`; all else is for clock.c. */
struct table_clocks {
    struct allowance *allowance;
    uint64_t *clocks; /* by rank; CLOCK_NONE: no member */
    uint32_t ranks, members;
    uint32_t at_minimum; /* members whose clock is the minimum */
    uint64_t minimum;    /* smallest clock; without members the last one */
    uint64_t largest;    /* largest clock that any member has had; a later job starts above */
};

/* A rank with its clock. */
struct clock_rank {
    uint32_t rank;
    uint64_t clock;
};

/* Clocks of ranks 0 .. ranks - 1, none of them a member; `first` is the smallest clock at which one
 * may enter, 1 for a new table. Errors of allowance_alloc(). */
int table_clocks_init(struct table_clocks *clocks, struct allowance *allowance, uint32_t ranks,
                      uint64_t first);
/* Zeroed clocks are fine. */
void table_clocks_fini(struct table_clocks *clocks);

/* The rank becomes a member whose first iteration is `clock`. -EINVAL: no such rank; -EALREADY: a
 * member; -ERANGE: below the minimum. An error changes nothing. */
int table_clocks_enter(struct table_clocks *clocks, uint32_t rank, uint64_t clock);

/* The member has ended clock `ended` and all before. A repeated or overtaken announcement changes
 * nothing (W3). Returns 1: the minimum rose; 0: not; -EINVAL: no member, or a clock without a next
 * one. */
int table_clocks_end(struct table_clocks *clocks, uint32_t rank, uint64_t ended);

/* The rank left or was lost, and is no member any more. Returns 1: the minimum rose; 0: not;
 * -EINVAL: no member. */
int table_clocks_leave(struct table_clocks *clocks, uint32_t rank);

/* Clock of a rank; CLOCK_NONE: no member, or no such rank. */
uint64_t table_clocks_of(const struct table_clocks *clocks, uint32_t rank);

/* Members whose clock is less than `clock`, at most `most`, in order of rank: those that a wait for
 * this clock names. Returns the number of all of them, also beyond `most`. */
uint32_t table_clocks_behind(const struct table_clocks *clocks, uint64_t clock,
                             struct clock_rank *ret_ranks, uint32_t most);

/* Returns whether every member has ended `clock`: the pushes of that clock are complete. */
bool table_clocks_have_ended(const struct table_clocks *clocks, uint64_t clock);

/* ---- what has been applied ---- */

/* BSP: all keys of clocks before `clock`, and keys below `next` of `clock` itself, are applied.
 * Keys are mixed. A new shard is at {CLOCK_FIRST, 0}. */
struct shard_progress {
    uint64_t clock, next;
};

/* SSP and ASP: the same of one rank, by the sequence numbers of its pushes, which a restarted rank
 * counts anew, from 1, in a later session. A new rank is at {0, {1, 0}}. */
struct rank_progress {
    uint64_t session;
    struct shard_progress pushes; /* `clock` is a sequence number */
};

/* Returns whether an update of the key is applied already. */
bool shard_progress_covers(const struct shard_progress *progress, uint64_t clock, uint64_t mixed);
/* Keys up to `last` of the progress's clock are applied now. `last` is at or above `next`. */
void shard_progress_advance(struct shard_progress *progress, uint64_t last);
/* The progress's clock is applied to all keys. */
void shard_progress_finish(struct shard_progress *progress);
/* The rank continues in `session`: a later one starts from its first push. -ESTALE: an older one,
 * nothing changes. */
int rank_progress_enter(struct rank_progress *progress, uint64_t session);

/* ---- consistency ---- */

/* Returns whether a push of `clock` may be applied: in BSP when all members have ended the clock
 * and all earlier clocks are applied. */
bool table_push_may_start(const struct table_clocks *clocks, enum table_consistency consistency,
                          const struct shard_progress *progress, uint64_t clock);
/* Returns whether a pull at `clock` may be answered. BSP: when the clock before is applied. SSP:
 * when the minimum is at least clock - staleness, so that the answer has all pushes of all members
 * of clocks up to clock - staleness - 1, and perhaps more. ASP: at once. */
bool table_pull_may_start(const struct table_clocks *clocks, enum table_consistency consistency,
                          uint32_t staleness, const struct shard_progress *progress,
                          uint64_t clock);

#endif
