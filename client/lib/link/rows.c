/* Sends requests to tables, their settings and ends of clocks to a lane, in a fixed order (W26).
 * Settings are sent before the end of any clock. All requests of a clock are sent before its end,
 * and the requests of the next clock after its end. A record without room in the send queue waits
 * for the event ROOM (W10). */
#include "client/lib/job/row_call.h"
#include "client/lib/link/link.h"

#include <string.h>

static int rows_send_change(struct link *l, const struct table_change *change, uint32_t group)
{
    struct record_clock record = {.kind = RECORD_CLOCK,
                                  .form = RECORD_CLOCK_SETTINGS,
                                  .clock = change->clock,
                                  .session = l->job->tables->clock.session,
                                  .settings = change->settings};
    record.settings.table = row_table_id(change->settings.table, group);
    return fabric_send(l->conn, &record, sizeof record, NULL, 0);
}

static int rows_send_changes(struct link *l, struct table_lane *lane)
{
    int error = 0;
    if (lane->change == l->job->tables->use->changes_count)
        return 0;
    list_for_each_entry (const struct table_change, change, &l->job->tables->changes, node) {
        if (change->number <= lane->change)
            continue;
        if (job_table_has(change->table, lane->lane, lane->group))
            error = rows_send_change(l, change, lane->group);
        if (error < 0)
            return error;
        lane->change = change->number;
    }
    return 0;
}

/* Finds the numbers of up to `most` tables with shards on the lane, after the first `skip` such
 * tables. */
static size_t rows_tables(const struct gp_job *job, const struct table_lane *lane, size_t skip,
                          size_t most, uint32_t *ret_numbers)
{
    size_t count = 0;
    for_each_table (t, job) {
        if (!job_table_has(t, lane->lane, lane->group))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        if (count == most)
            break;
        ret_numbers[count++] = row_table_id(t->route.table, lane->group);
    }
    return count;
}

/* Sends records that name the tables of the lane, without the first `*sent` tables. Adds the number
 * of tables in the sent records to `*sent`. */
static int rows_send_clock_record(const struct link *l, const struct table_lane *lane,
                                  enum record_clock_form form, uint64_t ended, uint32_t *sent)
{
    struct worker_clock clock = l->job->tables->clock;
    uint32_t numbers[RECORD_CLOCK_TABLES_MAX];
    struct record_clock record;
    size_t count;
    clock.ended = ended;
    clock.sequence = lane->sequence;
    while ((count = rows_tables(l->job, lane, *sent, RECORD_CLOCK_TABLES_MAX, numbers)) > 0) {
        worker_clock_record(&clock, form, numbers, count, 0, &record);
        int error = fabric_send(l->conn, &record, sizeof record, NULL, 0);
        if (error < 0)
            return error;
        *sent += (uint32_t)count;
    }
    return 0;
}

/* Sends the end of the next clock to the lane. If the queue has no room for all records, the next
 * call sends all of them again; a repeated end of a clock changes nothing. */
static int rows_send_clock(const struct link *l, struct table_lane *lane)
{
    uint32_t sent = 0;
    int error = rows_send_clock_record(l, lane, RECORD_CLOCK_ENDED, lane->clock + 1, &sent);
    lane->clock += error == 0;
    return error;
}

/* Sends the standing of this rank to a lane that has taken over shards: one entry for each table,
 * with the newest ended clock. All repeated requests are sent before. Clocks that end later are
 * sent as usual. */
static int rows_send_standing(const struct link *l, struct table_lane *lane)
{
    if (lane->stood == 0)
        lane->clock = l->job->tables->clock.ended;
    int error = rows_send_clock_record(l, lane, RECORD_CLOCK_STANDING, lane->clock, &lane->stood);
    lane->must_stand = error < 0;
    return error;
}

static int rows_send_request(struct link *l, struct table_lane *lane,
                             const struct exchange_part *part)
{
    int error = fabric_send(l->conn, &part->record, sizeof part->record, NULL, 0);
    if (error == 0)
        lane->sequence = part->record.sequence;
    return error;
}

/* Sends the next request or end of a clock. Returns 1, 0 if nothing is due, or an error. */
static int rows_send_next(struct link *l, struct table_lane *lane)
{
    const struct job_tables *tables = l->job->tables;
    const struct exchange_part *part =
        exchanges_next(&tables->exchanges, lane->lane, lane->group, lane->sequence);
    int error;
    if (part && ((lane->must_stand && lane->stood == 0) || part->record.clock <= lane->clock + 1))
        error = rows_send_request(l, lane, part);
    else if (lane->must_stand)
        error = rows_send_standing(l, lane);
    else if (lane->clock < tables->clock.ended)
        error = rows_send_clock(l, lane);
    else
        return 0;
    return error < 0 ? error : 1;
}

/* Moves changes of settings that were sent to every lane to the spare changes. */
static void rows_drop_changes(struct job_tables *tables)
{
    uint64_t sent = tables->use->changes_count;
    if (tables->use->keeps_changes)
        return; /* the successor of a lost lane may need the changes (changes.c) */
    list_for_each_entry (const struct table_lane, lane, &tables->lanes, node)
        if (!lane->is_lost && lane->change < sent)
            sent = lane->change;
    list_for_each_safe_entry (struct table_change, change, &tables->changes, node) {
        if (change->number > sent)
            return;
        list_remove(&change->node);
        list_append(&tables->spare_changes, &change->node);
    }
}

/* Returns whether the lane serves the tables on this connection. A lane that has dropped the job
 * before the tables were declared ignores records on the old connection, and no later code would
 * repeat these records. Such a lane answers no query and ends the connection (L19). */
static bool rows_are_heard(struct link *l, struct table_lane *lane)
{
    struct record_query query = {
        .kind = RECORD_QUERY, .is_of_table = 1, .word = RECORD_WORD_NONE, .round = 1};
    if (l->is_left && !lane->was_probed && rows_tables(l->job, lane, 0, 1, &query.piece) > 0)
        lane->was_probed = fabric_send(l->conn, &query, sizeof query, NULL, 0) == 0;
    lane->was_probed &= l->is_left;
    return !l->is_left;
}

void link_keep_rows(struct link *l)
{
    l->is_left = false;
    link_flush(l);
}

static void rows_flush_lane(struct link *l, struct table_lane *lane)
{
    if (lane->is_lost || lane->is_orphan || lane->fence || !rows_are_heard(l, lane))
        return;
    int result = rows_send_changes(l, lane);
    if (result == 0)
        rows_drop_changes(l->job->tables);
    while (result >= 0 && (result = rows_send_next(l, lane)) > 0)
        ;
    table_lane_set_unsent(l->job, lane, result < 0);
}

void link_flush_rows(struct link *l)
{
    if (!l->job->tables)
        return;
    list_for_each_entry (struct table_lane, lane, &l->job->tables->lanes, node)
        if (lane->lane == l->lane)
            rows_flush_lane(l, lane);
}

void link_announce_rows(struct gp_job *job)
{
    list_for_each_entry (struct table_lane, lane, &job->tables->lanes, node)
        if (!lane->is_lost && !lane->is_orphan)
            table_lane_set_unsent(job, lane, true);
    for_each_link (l, job)
        if (job_tables_are_on(job, l->lane))
            link_flush(l);
    engine_flush(&job->engine);
}

void link_lift_rows(struct link *l)
{
    if (!l->job->tables)
        return;
    list_for_each_entry (struct table_lane, lane, &l->job->tables->lanes, node)
        if (lane->fence == l)
            lane->fence = NULL;
}

bool link_query_rows(struct link *l, const struct exchange_part *part, uint64_t clock)
{
    struct record_query query = {.kind = RECORD_QUERY,
                                 .is_of_table = 1,
                                 .word = part->record.word,
                                 .piece = part->record.table,
                                 .round = clock};
    return l->state == LINK_OPEN && fabric_send(l->conn, &query, sizeof query, NULL, 0) == 0;
}
