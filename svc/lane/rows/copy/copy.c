/* Stores copies of tables of other lanes. Blocks come from another process, so tables, shards and
 * lengths are checked before a row changes. RULES.md: A130. */
#include "svc/lane/rows/copy/copy.h"

#include "svc/base/log.h"
#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/rows/log/row_state.h"
#include "svc/lane/rows/room/room.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>

/* The lane reports applied blocks after this number of bytes, and when all landed blocks are
 * applied. */
#define COPY_TOLD_BYTES (UINT64_C(1) << 20)

struct row_copy *copy_find(const struct lane_job *job, uint32_t owner)
{
    if (!job || !job->tables)
        return NULL;
    list_for_each_entry (struct row_copy, copy, &job->tables->copies, link)
        if (copy->owner == owner)
            return copy;
    return NULL;
}

void copy_free(struct row_copy *copy)
{
    struct lane_tables *tables = copy->tables;
    list_for_each_safe_entry (struct lane_table, table, &copy->copied, link)
        table_destroy(table);
    list_remove(&copy->link);
    allowance_free(&tables->allowance, copy, sizeof *copy);
}

void copies_free(struct lane_tables *tables)
{
    list_for_each_safe_entry (struct row_copy, copy, &tables->copies, link)
        copy_free(copy);
}

void lane_drop_copy(struct lane *lane, uint32_t job, uint32_t owner)
{
    struct row_copy *copy = copy_find(job_find(lane, job), owner);
    if (copy)
        copy_free(copy);
}

void lane_drop_copies(struct lane *lane, uint32_t job_id)
{
    struct lane_job *job = job_find(lane, job_id);
    if (job && job->tables)
        copies_free(job->tables);
}

static struct lane_table *copy_table(const struct row_copy *copy, uint32_t id)
{
    list_for_each_entry (struct lane_table, table, &copy->copied, link)
        if (table->id == id)
            return table;
    return NULL;
}

static int copy_make(struct lane_tables *tables, const struct lane_copy_spec *spec,
                     struct row_copy **ret_copy)
{
    struct row_copy *copy;
    int error = allowance_alloc(&tables->allowance, sizeof *copy, (void **)&copy);
    if (error < 0)
        return error;
    *copy = (struct row_copy){
        .tables = tables, .owner = spec->owner, .copy = spec->copy, .ring = spec->ring};
    list_init(&copy->link);
    list_init(&copy->copied);
    log_reader_init(&copy->reader, spec->copy);
    list_append(&tables->copies, &copy->link);
    *ret_copy = copy;
    return 0;
}

int lane_place_copy(struct lane *lane, uint32_t job_id, const struct lane_copy_spec *spec,
                    const struct lane_table_spec *table, const struct lane_shard_spec *shards,
                    size_t count)
{
    struct lane_job *job = job_find(lane, job_id);
    int error = table_check_place(job, table, shards, count);
    if (error < 0)
        return error;
    error = tables_open(job, table->rows_bytes_max);
    struct row_copy *copy = copy_find(job, spec->owner);
    if (copy && copy->copy != spec->copy) {
        copy_free(copy);
        copy = NULL;
    }
    if (error == 0 && !copy)
        error = copy_make(job->tables, spec, &copy);
    if (error < 0)
        return error;
    const struct lane_table *known = copy_table(copy, table->id);
    if (known)
        return table_is_same(known, table, shards, count) ? 0 : -EEXIST;
    return table_create(job->tables, table, shards, count, &copy->copied);
}

/* ---- blocks ---- */

static int copy_apply_rows(struct row_copy *copy, const struct log_head *head, const void *payload)
{
    struct lane_table *table = copy_table(copy, head->table);
    const struct lane_shard *shard = table ? table_shard_at(table, head->shard) : NULL;
    if (!shard && (head->payload_bytes > 0 || !table))
        return -EBADMSG;
    int error = shard ? log_apply(shard->store, payload, head->payload_bytes) : 0;
    if (error < 0)
        return error;
    return head->kind == LOG_ROWS ? row_state_advance(table, head) : 0;
}

static int copy_apply_state(struct row_copy *copy, const struct log_head *head, const void *payload)
{
    struct lane_table *table = copy_table(copy, head->table);
    return table ? row_state_read(table, payload, head->payload_bytes) : -EBADMSG;
}

static int copy_apply_block(struct row_copy *copy, const struct log_head *head, const void *payload)
{
    switch (head->kind) {
    case LOG_ROWS:
    case LOG_COPY: return copy_apply_rows(copy, head, payload);
    case LOG_STATE: return copy_apply_state(copy, head, payload);
    default: copy->is_whole = true; return 0;
    }
}

static void copy_make_due(struct row_copy *copy)
{
    const struct lane_options *options = &copy->tables->job->lane->options;
    copy->is_due = true;
    if (options->moving_news)
        options->moving_news(options->context);
}

static void copy_damage(struct row_copy *copy, int error)
{
    copy->is_damaged = true;
    copy_make_due(copy);
    log_warn("job '%s': lane %u cannot apply the log of lane %u (%s); its copy of the tables ends",
             copy->tables->job->name, copy->tables->job->lane->options.id, copy->owner,
             err_text(error));
}

int copy_apply(struct row_copy *copy)
{
    struct log_head head;
    const void *payload;
    if (copy->is_damaged)
        return -EBADMSG;
    if (!log_next(&copy->reader, copy->ring, &head, &payload))
        return 0;
    int error = copy_apply_block(copy, &head, payload);
    if (error < 0 && room_lacks(copy->tables, error))
        return -EAGAIN;
    if (error < 0) {
        copy_damage(copy, error);
        return -EBADMSG;
    }
    room_check(copy->tables);
    log_pass(&copy->reader, &head);
    return 1;
}

static void copy_report_applied(struct row_copy *copy)
{
    uint64_t untold = copy->reader.position - copy->told;
    bool is_all = copy->reader.position >= copy->logged;
    if (untold == 0 || (untold < COPY_TOLD_BYTES && !is_all))
        return;
    copy->told = copy->reader.position;
    copy_make_due(copy);
}

/* Applies the next block if blocks have landed that are not applied yet. */
static bool copy_work(struct row_copy *copy)
{
    bool is_due = !copy->is_damaged && copy->reader.position < copy->logged;
    if (!is_due || room_is_short(copy->tables) || copy_apply(copy) <= 0)
        return false;
    copy_report_applied(copy);
    return true;
}

bool copies_work(struct lane_tables *tables)
{
    bool has_work = false;
    list_for_each_entry (struct row_copy, copy, &tables->copies, link)
        has_work |= copy_work(copy);
    return has_work;
}

void lane_copy_logged(struct lane *lane, uint32_t job_id, uint32_t owner, uint32_t number,
                      uint64_t position)
{
    struct lane_job *job = job_find(lane, job_id);
    struct row_copy *copy = copy_find(job, owner);
    if (!copy || copy->copy != number || position <= copy->logged)
        return;
    copy->logged = position;
    job_wake(job);
}

void lane_each_copy_report(struct lane *lane, bool again,
                           void (*each)(void *context, const struct lane_copy_report *report),
                           void *context)
{
    list_for_each_entry (struct lane_job, job, &lane->jobs, link) {
        if (!job->tables || job->is_dropped)
            continue;
        list_for_each_entry (struct row_copy, copy, &job->tables->copies, link) {
            if (copy->is_due || (again && copy->is_damaged))
                each(context, &(struct lane_copy_report){job->id, copy->owner, copy->copy,
                                                         copy->told, copy->is_damaged});
            copy->is_due = false;
        }
    }
}
