/* Owns the allowance of a job's rows on a lane. Requests reach the coordinator through the control
 * thread, which the callback memory_wanted wakes. RULES.md: A82, A134. */
#include "svc/lane/rows/room/room.h"

#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>

#define PAGE_BYTES 4096u

static int room_alloc(void *context, size_t bytes, void **ret_memory)
{
    struct row_room *room = context;
    void *memory = bytes < PAGE_BYTES ? arena_alloc(room->arena, &room->account, bytes)
                                      : arena_alloc_aligned(room->arena, &room->account, bytes);
    if (!memory)
        return arena_lack(room->arena);
    *ret_memory = memory;
    return 0;
}

static void room_free_rows(void *context, void *memory, size_t bytes)
{
    struct row_room *room = context;
    (void)bytes;
    arena_free(room->arena, &room->account, memory);
}

/* The account of the rows needs no limit: the allowance limits the rows of one job, and the memory
 * of the lane limits the allowances of all jobs. */
int room_make(struct lane_tables *tables)
{
    int error = allowance_alloc(&tables->allowance, sizeof *tables->room, (void **)&tables->room);
    if (error < 0)
        return error;
    struct row_room *room = tables->room;
    room->arena = tables->job->lane->options.arena;
    room->account.limit_bytes = SIZE_MAX;
    room->rows = (struct allowance){.alloc = room_alloc, .free = room_free_rows, .context = room};
    return 0;
}

void room_free(struct lane_tables *tables)
{
    allowance_free(&tables->allowance, tables->room, sizeof *tables->room);
    tables->room = NULL;
}

static void room_request(struct lane_tables *tables)
{
    const struct lane_options *options = &tables->job->lane->options;
    tables->room->is_due = true;
    tables->room->asked_bytes = tables->room->rows.limit_bytes;
    if (options->memory_wanted)
        options->memory_wanted(options->context);
}

void room_allow(struct lane_tables *tables, uint64_t bytes)
{
    struct row_room *room = tables->room;
    uint64_t limit_bytes = bytes ? bytes : UINT64_MAX;
    if (limit_bytes <= room->rows.limit_bytes)
        return;
    room->rows.limit_bytes = limit_bytes;
    if (room->needed_bytes <= limit_bytes)
        room->needed_bytes = 0;
    job_wake(tables->job);
}

void room_check(struct lane_tables *tables)
{
    const struct row_room *room = tables->room;
    bool is_asked = room->asked_bytes == room->rows.limit_bytes;
    if (!is_asked && allowance_wanted_bytes(&room->rows) > 0)
        room_request(tables);
}

bool room_lacks(struct lane_tables *tables, int error)
{
    struct row_room *room = tables->room;
    if (error != -EDQUOT || room->rows.refused_bytes <= room->rows.limit_bytes)
        return false;
    room->needed_bytes = room->rows.refused_bytes;
    room_request(tables);
    return true;
}

bool room_is_short(const struct lane_tables *tables) { return tables->room->needed_bytes > 0; }

void room_forget(struct lane_tables *tables)
{
    if (tables->room->needed_bytes == 0)
        return;
    tables->room->needed_bytes = 0;
    room_request(tables);
    job_wake(tables->job);
}

void lane_allow_rows(struct lane *lane, uint32_t job_id, uint64_t bytes)
{
    const struct lane_job *job = job_find(lane, job_id);
    if (job && job->tables)
        room_allow(job->tables, bytes);
}

void lane_each_rows_wanted(struct lane *lane, bool again,
                           void (*each)(void *context, const struct lane_rows_wanted *wanted),
                           void *context)
{
    list_for_each_entry (struct lane_job, job, &lane->jobs, link) {
        struct row_room *room = job->tables ? job->tables->room : NULL;
        if (!room || job->failure || job->is_dropped)
            continue;
        if (room->is_due || (again && room->needed_bytes > 0))
            each(context,
                 &(struct lane_rows_wanted){job->id, room->rows.limit_bytes, room->needed_bytes});
        room->is_due = false;
    }
}
