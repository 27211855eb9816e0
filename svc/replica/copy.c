/* Memory for two states of a piece, which are written alternately. Each state is followed by a
 * stamp that marks a complete state. Owns this memory and the table of copies. Reads the stamps,
 * never the states. README: J1, J2. */
#include "svc/replica/internal.h"

#include "svc/base/system/cgroup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns the bytes of one half: state and stamp, rounded up to a multiple of 64. */
static uint64_t half_bytes(const struct kept_copy *copy)
{
    return (copy->bytes + sizeof(struct record_stamp) + 63) / 64 * 64;
}

static char *stamp_at(const struct kept_copy *copy, int half)
{
    return copy->memory + (uint64_t)half * half_bytes(copy) + copy->bytes;
}

struct kept_copy *kept_copy_find(const struct kept_job *job, uint32_t piece)
{
    return piece < job->copies_room ? job->copies[piece] : NULL;
}

static int make_room(struct kept_job *job, uint32_t piece)
{
    if (piece < job->copies_room)
        return 0;
    size_t room = job->copies_room ? job->copies_room : 64;
    while (room <= piece)
        room *= 2;
    struct kept_copy **copies = realloc(job->copies, room * sizeof *copies);
    if (!copies)
        return -ENOMEM;
    memset(copies + job->copies_room, 0, (room - job->copies_room) * sizeof *copies);
    job->copies = copies;
    job->copies_room = room;
    return 0;
}

static int create(struct kept_job *job, const struct holder_copy *spec)
{
    void *memory;
    struct cgroup_memory group = cgroup_memory("");
    int error = make_room(job, spec->piece);
    struct kept_copy *copy = error == 0 ? calloc(1, sizeof *copy) : NULL;
    if (!copy)
        return -ENOMEM;
    list_init(&copy->unoffered);
    copy->piece = spec->piece;
    copy->bytes = spec->bytes;
    error = cgroup_memory_fits(&group, 2 * half_bytes(copy)) ? 0 : -ENOSPC;
    if (error == 0)
        error = slabs_alloc(&job->slabs, 2 * half_bytes(copy), &memory);
    if (error < 0) {
        free(copy);
        return error;
    }
    copy->memory = memory;
    job->copies[spec->piece] = copy;
    return 0;
}

int kept_copy_make(struct kept_job *job, const struct holder_copy *spec,
                   struct kept_copy **ret_copy)
{
    struct kept_copy *copy = kept_copy_find(job, spec->piece);
    if (copy && copy->bytes != spec->bytes)
        return -EINVAL;
    int error = copy ? 0 : create(job, spec);
    if (error < 0)
        return error;
    copy = job->copies[spec->piece];
    copy->begins |= spec->begins || !copy->is_kept;
    *ret_copy = copy;
    return 0;
}

void kept_copy_wipe(struct kept_copy *copy)
{
    for (int half = 0; half < 2; half++)
        memset(stamp_at(copy, half), 0, sizeof(struct record_stamp));
    copy->begins = false;
}

void kept_copy_free(struct kept_job *job, struct kept_copy *copy)
{
    list_remove(&copy->unoffered);
    job->copies[copy->piece] = NULL;
    slabs_free(&job->slabs, copy->memory);
    free(copy);
}

void kept_copy_describe(const struct kept_job *job, const struct kept_copy *copy,
                        struct record_backup *ret_offer)
{
    struct slab_place place;
    slabs_find(&job->slabs, copy->memory, 2 * half_bytes(copy), &place);
    *ret_offer = (struct record_backup){.kind = RECORD_BACKUP,
                                        .piece = copy->piece,
                                        .region = place.region,
                                        .note = copy->note,
                                        .offset = {place.offset, place.offset + half_bytes(copy)},
                                        .since = RECORD_ROUND_NONE};
    for (int half = 0; half < 2; half++) {
        struct record_stamp stamp;
        memcpy(&stamp, stamp_at(copy, half), sizeof stamp);
        bool is_sound = stamp.round <= RECORD_ROUND_MOST && (int)(stamp.round & 1) == half;
        ret_offer->rounds[half] = is_sound ? stamp.round : 0;
        ret_offer->steps[half] = is_sound ? stamp.steps : 0;
        ret_offer->ranks[half] = is_sound ? stamp.ranks : 0;
    }
}
