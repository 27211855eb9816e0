/* Files of a pool. The lock is a flock() on a descriptor that a child closes when it executes its
 * program. When the next pool gets the lock, each started worker therefore has its cookie, and the
 * next pool finds all workers. No file is a symbolic link: in a folder that another user has
 * prepared, for example in /tmp, a link could lead to a file that this user may write. */
#include "svc/pool/folder.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Longest wait for the lock. A child of a killed pool holds the lock until the child executes its
 * program. */
#define LOCK_NS (2 * NS_PER_S)
#define LOCK_PAUSE_NS (10 * NS_PER_MS)
#define MARK "gradpool-pool"
#define VERSION 1

static void folder_file(const struct pool_folder *folder, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%.*s", folder->path, FOLDER_NAME_BYTES, name);
}

/* --- lock --- */

static int refuse_second(const struct pool_folder *folder, struct err *err)
{
    char pid[16] = "";
    ssize_t got = pread(folder->lock_fd, pid, sizeof pid - 1, 0);
    return err_set(err, -EEXIST,
                   "folder %s: another pool runs there, process %s; end it, or give another "
                   "--folder",
                   folder->path, got > 0 ? pid : "unknown");
}

static int folder_lock(struct pool_folder *folder, struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    uint64_t deadline_ns = clock_now_ns() + LOCK_NS;
    char path[PATH_MAX], pid[16];
    folder_file(folder, "lock", path);
    folder->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (folder->lock_fd < 0)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    while (flock(folder->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_set(err, -errno, "%s: no lock: %s", path, strerror(errno));
        if (clock_now_ns() > deadline_ns)
            return refuse_second(folder, err);
        nanosleep(&pause, NULL);
    }
    int bytes = snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (ftruncate(folder->lock_fd, 0) < 0 || pwrite(folder->lock_fd, pid, (size_t)bytes, 0) < 0)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    return 0;
}

/* --- state --- */

static bool state_read_line(struct pool_folder *f, char *line)
{
    uint32_t rank;
    int pid = 0;
    uint64_t incarnation, identity = 0;
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "job ", 4) == 0)
        return snprintf(f->job, sizeof f->job, "%s", line + 4) < (int)sizeof f->job;
    if (strncmp(line, "result ", 7) == 0)
        return f->was_over = true;
    if (strncmp(line, "waits ", 6) == 0)
        return true; /* only the process of a study reads this line */
    if (strncmp(line, "engine ", 7) == 0)
        return snprintf(f->engine, sizeof f->engine, "%s", line + 7) < (int)sizeof f->engine;
    if (strncmp(line, "site ", 5) == 0)
        return snprintf(f->site, sizeof f->site, "%s", line + 5) < (int)sizeof f->site;
    int fields = sscanf(line, "rank %" SCNu32 " %" SCNu64 " %d %" SCNx64, &rank, &incarnation, &pid,
                        &identity);
    if (fields >= 2 && rank < POOL_RANKS_MAX) {
        f->incarnations[rank] = incarnation;
        f->pids[rank] = pid;
        f->identities[rank] = identity;
        return true;
    }
    return sscanf(line, "pool %" SCNx64, &f->pool) == 1 ||
           sscanf(line, "program %" SCNx64, &f->program) == 1 ||
           sscanf(line, "founders %" SCNu32, &f->founders) == 1;
}

static int state_damaged(const char *path, const char *line, struct err *err)
{
    return err_set(err, -EBADMSG,
                   "%s: '%.40s' is no line of a pool's state; give another --folder, or remove the "
                   "file when no worker of the folder runs",
                   path, line);
}

static int state_read(struct pool_folder *f, struct err *err)
{
    char path[PATH_MAX], line[1024] = "";
    int version = 0;
    folder_file(f, "state", path);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %s", path, strerror(errno));
    bool is_good = fgets(line, sizeof line, file) && sscanf(line, MARK " %d", &version) == 1 &&
                   version == VERSION;
    while (is_good && fgets(line, sizeof line, file))
        is_good = state_read_line(f, line);
    fclose(file);
    is_good = is_good && f->pool != 0 && f->founders >= 1 && f->founders <= POOL_RANKS_MAX;
    return is_good ? 0 : state_damaged(path, line, err);
}

static bool state_write(const struct pool_folder *f, FILE *file)
{
    fprintf(file,
            MARK " %d\npool %016" PRIx64 "\nprogram %016" PRIx64 "\njob %s\nfounders %" PRIu32 "\n",
            VERSION, f->pool, f->program, f->job, f->founders);
    if (*f->site)
        fprintf(file, "site %s\n", f->site);
    if (*f->engine)
        fprintf(file, "engine %s\n", f->engine);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        if (f->incarnations[rank])
            fprintf(file, "rank %" PRIu32 " %" PRIu64 " %d %016" PRIx64 "\n", rank,
                    f->incarnations[rank], (int)f->pids[rank], f->identities[rank]);
    for (uint32_t rank = 0; rank < POOL_RANKS_MAX; rank++)
        if (f->waits[rank])
            fprintf(file, "waits %" PRIu32 " %s\n", rank, f->waits[rank]);
    if (f->has_result)
        fprintf(file, "result %d\n", f->result);
    bool is_written = !ferror(file);
    return fclose(file) == 0 && is_written;
}

int folder_store(const struct pool_folder *folder, struct err *err)
{
    char path[PATH_MAX], next[PATH_MAX];
    folder_file(folder, "state", path);
    folder_file(folder, "state.next", next);
    /* removes a file of a pool that was killed, or a link */
    bool is_free = unlink(next) == 0 || errno == ENOENT;
    FILE *file = is_free ? fopen(next, "wxe") : NULL;
    if (!file || !state_write(folder, file) || rename(next, path) < 0)
        return err_set(err, -errno,
                       "%s cannot be written: %s; free space, or give another --folder", next,
                       strerror(errno));
    return 0;
}

/* --- folder --- */

static uint64_t random_number(void)
{
    uint64_t number = 0;
    while (number == 0)
        if (getrandom(&number, sizeof number, 0) < 0 && errno != EINTR)
            number = clock_now_ns() ^ ((uint64_t)getpid() << 40);
    return number;
}

/* Creates the folder. Resolves its path, because the caller may change its working folder later. */
static int folder_make(const char *path, struct pool_folder *folder)
{
    char whole[PATH_MAX];
    if ((mkdir(path, 0700) < 0 && errno != EEXIST) || !realpath(path, whole))
        return -errno;
    size_t bytes = strlen(whole) + 1;
    if (bytes > sizeof folder->path)
        return -ENAMETOOLONG;
    memcpy(folder->path, whole, bytes);
    return 0;
}

/* Refuses a folder of another user, because this user could forge the state: which processes are
 * workers, and which are ended. */
static int folder_check_owner(const struct pool_folder *folder, struct err *err)
{
    struct stat status;
    if (stat(folder->path, &status) < 0)
        return err_set(err, -errno, "folder %s: %s", folder->path, strerror(errno));
    if (status.st_uid == geteuid())
        return 0;
    return err_set(err, -EPERM,
                   "folder %s belongs to user %u, so that user could change the pool's state; give "
                   "a --folder of your own",
                   folder->path, (unsigned)status.st_uid);
}

int folder_open(const char *path, struct pool_folder *ret_folder, struct err *err)
{
    struct pool_folder folder = {.lock_fd = -1, .founders = 1};
    int error = folder_make(path, &folder);
    if (error < 0)
        return err_set(err, error, "folder %s cannot be used: %s; give another --folder", path,
                       strerror(-error));
    error = folder_check_owner(&folder, err) ?: folder_lock(&folder, err);
    if (error == 0)
        error = state_read(&folder, err);
    if (error < 0) {
        folder_close(&folder);
        return error;
    }
    if (folder.pool == 0)
        folder.pool = random_number();
    *ret_folder = folder;
    return 0;
}

void folder_close(struct pool_folder *folder)
{
    if (folder->lock_fd >= 0)
        close(folder->lock_fd);
    folder->lock_fd = -1;
}

static void log_name(uint32_t rank, char name[FOLDER_NAME_BYTES])
{
    snprintf(name, FOLDER_NAME_BYTES, "rank-%u.log", rank);
}

void folder_log_path(const struct pool_folder *folder, uint32_t rank, char path[PATH_MAX])
{
    char name[FOLDER_NAME_BYTES];
    log_name(rank, name);
    folder_file(folder, name, path);
}

int folder_open_file(const struct pool_folder *folder, const char *name, struct err *err)
{
    char path[PATH_MAX];
    folder_file(folder, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    return fd;
}

int folder_open_log(const struct pool_folder *folder, uint32_t rank, struct err *err)
{
    char name[FOLDER_NAME_BYTES];
    log_name(rank, name);
    return folder_open_file(folder, name, err);
}
