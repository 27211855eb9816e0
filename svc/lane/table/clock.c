/* Clocks of the members of a table, and the progress of shards. Owns the list of clocks by rank. */
#include "svc/lane/table/clock.h"

#include "svc/wire/ranks.h"

#include <assert.h>
#include <errno.h>

int table_clocks_init(struct table_clocks *clocks, struct allowance *allowance, uint32_t ranks,
                      uint64_t first)
{
    void *memory;
    int error = allowance_alloc(allowance, ranks * sizeof *clocks->clocks, &memory);
    if (error < 0)
        return error;
    *clocks = (struct table_clocks){.allowance = allowance,
                                    .clocks = memory,
                                    .ranks = ranks,
                                    .minimum = first < CLOCK_FIRST ? CLOCK_FIRST : first};
    return 0;
}

void table_clocks_fini(struct table_clocks *clocks)
{
    if (clocks->clocks)
        allowance_free(clocks->allowance, clocks->clocks, clocks->ranks * sizeof *clocks->clocks);
    *clocks = (struct table_clocks){.allowance = clocks->allowance};
}

uint64_t table_clocks_of(const struct table_clocks *clocks, uint32_t rank)
{
    return rank < clocks->ranks ? clocks->clocks[rank] : CLOCK_NONE;
}

/* Computes the minimum again; without members the former minimum stays. Returns whether the minimum
 * rose. */
static int clock_find_minimum(struct table_clocks *clocks)
{
    uint64_t before = clocks->minimum, minimum = UINT64_MAX;
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < clocks->ranks; rank++) {
        uint64_t clock = clocks->clocks[rank];
        if (clock == CLOCK_NONE || clock > minimum)
            continue;
        count = clock < minimum ? 1 : count + 1;
        minimum = clock;
    }
    clocks->at_minimum = count;
    clocks->minimum = count ? minimum : before;
    assert(clocks->minimum >= before);
    return clocks->minimum > before;
}

int table_clocks_enter(struct table_clocks *clocks, uint32_t rank, uint64_t clock)
{
    if (rank >= clocks->ranks || clock == UINT64_MAX)
        return -EINVAL;
    if (clocks->clocks[rank] != CLOCK_NONE)
        return -EALREADY;
    if (clock < clocks->minimum)
        return -ERANGE;
    clocks->clocks[rank] = clock;
    clocks->members++;
    if (clock > clocks->largest)
        clocks->largest = clock;
    /* The clock of the first member becomes the minimum, which later members cannot lower. */
    if (clocks->members == 1)
        clocks->minimum = clock;
    clocks->at_minimum += clock == clocks->minimum;
    return 0;
}

int table_clocks_end(struct table_clocks *clocks, uint32_t rank, uint64_t ended)
{
    uint64_t before = table_clocks_of(clocks, rank);
    if (before == CLOCK_NONE || ended >= UINT64_MAX - 1)
        return -EINVAL;
    if (ended < before)
        return 0;
    clocks->clocks[rank] = ended + 1;
    if (ended + 1 > clocks->largest)
        clocks->largest = ended + 1;
    if (before != clocks->minimum || --clocks->at_minimum > 0)
        return 0;
    return clock_find_minimum(clocks);
}

int table_clocks_leave(struct table_clocks *clocks, uint32_t rank)
{
    uint64_t before = table_clocks_of(clocks, rank);
    if (before == CLOCK_NONE)
        return -EINVAL;
    clocks->clocks[rank] = CLOCK_NONE;
    clocks->members--;
    if (before != clocks->minimum || --clocks->at_minimum > 0)
        return 0;
    return clock_find_minimum(clocks);
}

void table_clocks_regroup(struct table_clocks *clocks, const uint64_t *ranks, uint64_t clock)
{
    assert(clock >= clocks->minimum && clock >= clocks->largest);
    clocks->members = 0;
    for (uint32_t rank = 0; rank < clocks->ranks; rank++) {
        bool is_member = ranks_have(ranks, rank);
        clocks->clocks[rank] = is_member ? clock : CLOCK_NONE;
        clocks->members += is_member;
    }
    clocks->minimum = clocks->largest = clock;
    clocks->at_minimum = clocks->members;
}

uint32_t table_clocks_behind(const struct table_clocks *clocks, uint64_t clock,
                             struct clock_rank *ret_ranks, uint32_t most)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < clocks->ranks; rank++) {
        uint64_t have = clocks->clocks[rank];
        if (have == CLOCK_NONE || have >= clock)
            continue;
        if (count < most)
            ret_ranks[count] = (struct clock_rank){rank, have};
        count++;
    }
    return count;
}

bool table_clocks_have_ended(const struct table_clocks *clocks, uint64_t clock)
{
    return clock < clocks->minimum;
}

bool shard_progress_covers(const struct shard_progress *progress, uint64_t clock, uint64_t mixed)
{
    return clock < progress->clock || (clock == progress->clock && mixed < progress->next);
}

void shard_progress_advance(struct shard_progress *progress, uint64_t last)
{
    assert(last >= progress->next);
    if (last == UINT64_MAX)
        shard_progress_finish(progress);
    else
        progress->next = last + 1;
}

void shard_progress_finish(struct shard_progress *progress)
{
    progress->clock++;
    progress->next = 0;
}

int rank_progress_enter(struct rank_progress *progress, uint64_t session)
{
    if (session < progress->session)
        return -ESTALE;
    if (session > progress->session)
        *progress = (struct rank_progress){.session = session, .pushes = {.clock = 1}};
    return 0;
}

bool table_push_may_start(const struct table_clocks *clocks, enum table_consistency consistency,
                          const struct shard_progress *progress, uint64_t clock)
{
    if (consistency != TABLE_BSP)
        return true;
    return clock == progress->clock && table_clocks_have_ended(clocks, clock);
}

/* Neither side of the comparison overflows: clock - staleness is computed only above 0, and the
 * minimum is compared without an addition. */
bool table_pull_may_start(const struct table_clocks *clocks, enum table_consistency consistency,
                          uint32_t staleness, const struct shard_progress *progress, uint64_t clock)
{
    switch (consistency) {
    case TABLE_BSP: return clock <= progress->clock;
    case TABLE_SSP: return clock <= staleness || clock - staleness <= clocks->minimum;
    case TABLE_ASP: return true;
    }
    return false;
}
