/* Adoption of workers that an earlier pool of the folder has started. A worker is known by its
 * cookie, whose process number is its own, or by its process in the state of the folder. The lock
 * of the folder is held, so no other pool starts or adopts them. */
#include "svc/base/system/process.h"
#include "svc/pool/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

/* A pool that adopts workers, and the error of a worker that cannot be adopted; 0: none. */
struct adoption {
    struct worker_pool *pool;
    int error;
};

/* Keeps the worker with the newest incarnation of its rank. An older one is ended: a rank has one
 * process. */
static void adopt_worker(void *context, const struct cookie *cookie, pid_t pid, int pidfd)
{
    struct adoption *adoption = context;
    if (cookie->pid != pid || cookie->rank >= POOL_RANKS_MAX)
        return;
    struct pool_process *known = &adoption->pool->processes[cookie->rank];
    if (known->pidfd >= 0 && known->cookie.incarnation > cookie->incarnation) {
        pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
        return;
    }
    if (known->pidfd >= 0)
        process_signal(known, SIGKILL);
    process_close(known);
    *known = (struct pool_process){.pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0), .cookie = *cookie};
    if (known->pidfd < 0)
        adoption->error = -errno;
}

/* Returns whether the process of the rank's newest start runs. A process that has ended keeps its
 * identity until its parent has read the status. */
static bool start_runs(const struct pool_folder *folder, uint32_t rank)
{
    uint32_t pid = (uint32_t)folder->pids[rank];
    char state = process_state(pid);
    return state != 0 && state != 'Z' && state != 'X' &&
           process_identity(pid) == folder->identities[rank];
}

/* Adopts workers that carry no cookie any more, for example because they have changed their title.
 * The folder has their process. */
static void adopt_stored(struct worker_pool *pool)
{
    const struct pool_folder *folder = pool->folder;
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        pid_t pid = folder->pids[rank];
        if (pool->processes[rank].pidfd >= 0 || pid <= 0 || folder->identities[rank] == 0)
            continue;
        int pidfd = pidfd_open(pid, 0); /* before the comparison: see processes_each() */
        struct pool_process found = {.pidfd = pidfd,
                                     .cookie = {.pool = folder->pool,
                                                .incarnation = folder->incarnations[rank],
                                                .rank = rank,
                                                .pid = pid}};
        if (pidfd >= 0 && start_runs(folder, rank))
            pool->processes[rank] = found;
        else if (pidfd >= 0)
            close(pidfd);
    }
}

/* Ends a process whose worker has ended while no pool ran. */
static void adopt_no_stray(void *context, const struct cookie *cookie, pid_t pid, int pidfd)
{
    const struct worker_pool *pool = context;
    const struct pool_process *worker =
        cookie->rank < POOL_RANKS_MAX ? &pool->processes[cookie->rank] : NULL;
    if (!worker || worker->pidfd < 0 || worker->cookie.incarnation != cookie->incarnation)
        pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
}

static uint32_t count_adopted(const struct worker_pool *pool, uint32_t *ret_highest)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++) {
        if (pool->processes[rank].pidfd < 0)
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
    struct adoption adoption = {.pool = pool};
    uint32_t highest = 0;
    processes_each(pool->folder->pool, adopt_worker, &adoption);
    if (adoption.error < 0) /* without its pidfd a worker would count as ended */
        return err_set(err, adoption.error,
                       "folder %s: a worker cannot be adopted: %s; raise the limit of open files "
                       "(ulimit -n)",
                       pool->folder->path, strerror(-adoption.error));
    adopt_stored(pool);
    uint32_t count = count_adopted(pool, &highest);
    int error = count == 0 ? 0 : adopt_check(pool, count, highest, err);
    if (error < 0)
        return error;
    processes_each(pool->folder->pool, adopt_no_stray, pool);
    if (count == 0)
        return 0;
    uint32_t founders = pool->folder->founders;
    pool->ranks.founders = founders;
    pool->ranks.wanted = highest < founders ? founders : highest + 1; /* until the job is seen */
    for (uint32_t rank = 0; rank <= highest; rank++)
        if (pool->processes[rank].pidfd >= 0)
            ranks_started(&pool->ranks, rank, pool->processes[rank].cookie.incarnation, true,
                          now_ns);
    return (int)count;
}
