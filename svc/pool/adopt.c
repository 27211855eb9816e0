/* Adoption of workers that an earlier pool of the folder has started. The engine finds these
 * workers. This pool holds the lock of the folder, so no other pool starts or adopts them. */
#include "svc/pool/internal.h"

#include <errno.h>
#include <string.h>

static uint32_t count_adopted(const struct worker_pool *pool, uint32_t *ret_highest)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        struct cookie cookie;
        if (!pool->engine->calls->find(pool->engine, rank, &cookie))
            continue;
        *ret_highest = rank;
        count++;
    }
    return count;
}

/* FNV-1a over all arguments, each with its zero byte. */
uint64_t pool_program_hash(char *const *program)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (char *const *word = program; *word; word++)
        for (const char *at = *word; at == *word || at[-1]; at++)
            value = (value ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    return value;
}

static int adopt_check(const struct worker_pool *pool, uint32_t count, uint32_t highest,
                       struct err *err)
{
    const struct pool_folder *folder = pool->folder;
    const struct pool_options *o = pool->options;
    if (folder->program != pool_program_hash(o->program))
        return err_set(err, -EEXIST,
                       "folder %s: %u workers of another command train there; end them, or give "
                       "another --folder",
                       folder->path, count);
    if (o->job && strcmp(o->job, folder->job) != 0)
        return err_set(err, -EEXIST,
                       "folder %s: %u workers of job %s train there, not of job %s; give another "
                       "--folder",
                       folder->path, count, folder->job, o->job);
    if (highest >= o->workers_max)
        return err_set(err, -EINVAL,
                       "folder %s: rank %u trains there, so --workers-max %u is too small; give "
                       "%u or more",
                       folder->path, highest, o->workers_max, highest + 1);
    return 0;
}

int pool_adopt(struct worker_pool *pool, uint64_t now_ns, struct err *err)
{
    struct pool_engine *engine = pool->engine;
    struct cookie cookie;
    uint32_t highest = 0;
    int error = engine->calls->adopt(engine, err);
    if (error < 0)
        return error;
    uint32_t count = count_adopted(pool, &highest);
    error = count == 0 ? 0 : adopt_check(pool, count, highest, err);
    if (error < 0)
        return error;
    engine->calls->end_strays(engine);
    if (count == 0)
        return 0;
    uint32_t founders = pool->folder->founders;
    pool->ranks.founders = founders;
    pool->ranks.wanted = highest < founders ? founders : highest + 1; /* until the first look */
    for (uint32_t rank = 0; rank <= highest; rank++)
        if (engine->calls->find(engine, rank, &cookie))
            ranks_started(&pool->ranks, rank, cookie.incarnation, true, now_ns);
    return (int)count;
}
