/* State of the copies of a table for operators, and the end of all copies before an import. */
#include "svc/coordinator/copies/internal.h"
#include "svc/coordinator/service.h"
#include "svc/wire/durability.h"

#include <errno.h>

#define SHOWN(name) GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_##name

static WIRE(TableCopyState) copy_state_shown(const struct shards_copy *copy)
{
    switch (copy->state) {
    case COPY_WHOLE: return SHOWN(WHOLE);
    case COPY_BEGUN:
    case COPY_PLACING:
    case COPY_COPYING: return SHOWN(COPYING);
    case COPY_PROMOTED:
    case COPY_PROMOTING: return SHOWN(PROMOTING);
    default: return SHOWN(NONE);
    }
}

/* Returns the state of the copy for one shard. A shard that the owner received after the begin of
 * the copy has no copy, although the copy is whole. */
static WIRE(TableCopyState)
    shard_copy_state(const struct job_shard *shard, const struct shards_copy *copy)
{
    WIRE(TableCopyState) state = copy ? copy_state_shown(copy) : SHOWN(NONE);
    return state == SHOWN(WHOLE) && shard->copy != copy->copy ? SHOWN(NONE) : state;
}

static uint32_t shard_owner(const struct job_shard *shard)
{
    return shard->former ? shard->former : shard->lane ? shard->lane->id : 0;
}

WIRE(TableCopyState) table_copies_state(const struct job_table *table, const char **ret_fault)
{
    const struct shards_copy *copy = NULL;
    WIRE(TableCopyState) worst = SHOWN(UNWANTED);
    *ret_fault = "";
    if (table->failure || table->terms->durability != DURABILITY_REPLICA)
        return worst;
    table_each_shard(shard, table)
    {
        uint32_t owner = shard_owner(shard);
        if (!copy || copy->owner != owner)
            copy = copy_at(table->job, owner);
        WIRE(TableCopyState) state = shard_copy_state(shard, copy);
        if (state <= worst)
            continue;
        worst = state;
        *ret_fault = copy && state != SHOWN(WHOLE) ? copy->fault : "";
    }
    return worst;
}

int table_copies_forget(struct job *job)
{
    bool is_stored = true;
    list_for_each_entry (struct shards_copy, copy, &job->index->tables.copies, link) {
        copy_lose(copy, "rows are imported", false);
        is_stored &= copy->state != COPY_LOST;
    }
    return is_stored ? 0 : -EAGAIN;
}
