/* Moves open requests, settings and clocks of a lost lane to the lane that continues with its copy
 * of the tables. The standing of this rank is sent behind the repeated requests (A132). */
#include "client/lib/rows/promotion.h"

#include "client/lib/job/row_call.h"
#include "client/lib/link/link.h"
#include "svc/base/log.h"

#include <errno.h>
#include <string.h>

/* Stores the successor in each struct table_lane whose shards another lane serves now. */
static void promotion_find(const struct gp_table *t, const Gradpool__Wire__TableRoute *message)
{
    uint32_t shards = table_route_shards(&t->route);
    for (uint32_t i = 0; i < shards && i < message->n_shards; i++) {
        const Gradpool__Wire__ShardRoute *said = message->shards[i];
        const struct shard_route *shard = &t->route.shards[i];
        struct table_lane *lane = job_tables_lane(t->job, shard->lane, shard->group);
        if (!lane || said->lane == 0 || said->epoch <= shard->epoch || said->group > ROW_GROUP_MAX)
            continue;
        lane->next_lane = said->lane;
        lane->next_group = said->group;
    }
}

/* Writes the new epochs of the shards into the request's directory, which lanes read in the memory
 * of this worker. */
static void promotion_write_epochs(const struct row_call *call, const struct record_rows *record)
{
    const struct table_route *route = &call->batch->table->route;
    const struct row_memory *memory = call->memory;
    char *at = (char *)memory->base + (record->directory_offset - memory->place.offset);
    for (uint32_t i = 0; i < record->spans; i++, at += sizeof(struct row_span)) {
        struct row_span span;
        memcpy(&span, at, sizeof span);
        span.epoch = route->shards[span.shard].epoch;
        memcpy(at, &span, sizeof span);
    }
}

static void promotion_move_parts(struct gp_job *job, const struct table_lane *lane)
{
    list_for_each_entry (struct table_exchange, e, &job->tables->exchanges.open, node) {
        struct row_call *call = container_of(e, struct row_block, exchange)->call;
        if (call->batch->table->failure.code)
            continue; /* requests of a failed table end with the connection to the lost lane */
        for (uint32_t i = 0; i < e->parts_count; i++) {
            struct exchange_part *part = &e->parts[i];
            if (!exchange_part_is_at(part, lane->lane, lane->group))
                continue;
            part->lane = lane->next_lane;
            part->record.table = row_table_id(call->batch->table->route.table, lane->next_group);
            promotion_write_epochs(call, &part->record);
        }
    }
}

/* Closes the connection to the lost lane. The successor receives no record before the end of this
 * connection. */
static struct link *promotion_fence(struct gp_job *job, uint32_t lane)
{
    for_each_link (l, job) {
        if (l->lane != lane)
            continue;
        link_fence(l);
        return l->conn ? l : NULL;
    }
    return NULL;
}

static void promotion_move_lane(struct gp_job *job, struct table_lane *lane)
{
    uint32_t former = lane->lane;
    promotion_move_parts(job, lane);
    table_lane_set_unsent(job, lane, false);
    *lane = (struct table_lane){
        .node = lane->node, .lane = lane->next_lane, .group = lane->next_group, .must_stand = true};
    lane->fence = promotion_fence(job, former);
    log_info("job '%s' rank %u: lane %u continues with the tables of lane %u", job->name, job->rank,
             lane->lane, former);
}

/* Opens the link to the lane. If there is no memory for the link, the tables on the lane fail. */
static void promotion_open(struct gp_job *job, const struct table_lane *lane)
{
    if (link_get(job, lane->lane))
        return;
    for_each_table (t, job)
        if (job_table_is_on(t, lane->lane))
            job_table_break(t, -ENOMEM,
                            "this process has no memory for a connection to the lane that "
                            "continues with a copy; raise its memory limit");
}

static void promotion_move(struct gp_job *job, const Gradpool__Wire__RouteChange *change)
{
    for (size_t i = 0; i < change->n_tables; i++) {
        struct gp_table *t = job_table_find_number(job, change->tables[i]->table);
        if (t && !t->failure.code)
            promotion_find(t, change->tables[i]);
    }
    for (size_t i = 0; i < change->n_tables; i++) {
        struct gp_table *t = job_table_find_number(job, change->tables[i]->table);
        if (t && !t->failure.code)
            table_route_change(&t->route, change->tables[i]);
    }
    list_for_each_entry (struct table_lane, lane, &job->tables->lanes, node) {
        if (!lane->next_lane)
            continue;
        promotion_move_lane(job, lane);
        promotion_open(job, lane);
    }
    link_announce_rows(job);
}

/* The routes change while no thread lays out a request. */
void promotion_take(struct gp_job *job, const Gradpool__Wire__RouteChange *change)
{
    if (!job->tables || change->n_tables == 0)
        return;
    job->tables->use->is_changing = true;
    while (job->tables->use->laying > 0)
        pthread_cond_wait(&job->tables->use->laid, &job->lock);
    job->tables->use->is_changing = false;
    pthread_cond_broadcast(&job->tables->use->laid);
    promotion_move(job, change);
}
