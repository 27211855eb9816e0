/* Writes a file that is complete or absent. Owns the descriptor, and the temporary name if the file
 * system lacks O_TMPFILE. README: D1. */
#include "svc/state/whole_file.h"

#include "svc/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* maximum number of successive symbolic links, as in the kernel */

/* Number of files of this process. Two threads that write to one path need two temporary names. */
static _Atomic uint32_t files_begun;

static int whole_file_failed(const struct whole_file *w, struct err *err, int code)
{
    return err_set(err, code, "%s %s cannot be written: %s; choose another path", w->what, w->path,
                   err_text(code));
}

static int write_all(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t put = pwrite(fd, at, bytes < SSIZE_MAX ? bytes : SSIZE_MAX, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        at += put;
        offset += (uint64_t)put;
        bytes -= (uint64_t)put;
    }
    return 0;
}

int whole_file_write(struct whole_file *w, const void *data, uint64_t bytes, uint64_t offset,
                     struct err *err)
{
    int error = write_all(w->fd, data, bytes, offset);
    return error < 0 ? whole_file_failed(w, err, error) : 0;
}

static void whole_file_free(struct whole_file *w)
{
    cleanup_fd(&w->fd);
    free(w->path);
    free(w->temporary);
    *w = (struct whole_file){.fd = -1};
}

/* ---- begin ---- */

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t bytes = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    return bytes ? strndup(path, bytes) : strdup(".");
}

/* Replaces the path of a symbolic link by its target, relative to the folder of the link. Returns 1
 * if the path was replaced, 0 if the path is no link, or -ENOMEM. */
static int follow(char **path)
{
    char said[PATH_MAX], *target = NULL;
    ssize_t bytes = readlink(*path, said, sizeof said);
    if (bytes < 0)
        return 0; /* not a link; other errors are reported when the file is opened */
    _cleanup_free_ char *folder = folder_of(*path);
    if (!folder || (said[0] == '/' ? asprintf(&target, "%.*s", (int)bytes, said)
                                   : asprintf(&target, "%s/%.*s", folder, (int)bytes, said)) < 0)
        return -ENOMEM;
    free(*path);
    *path = target;
    return 1;
}

/* Follows symbolic links. The links stay unchanged. The new file replaces the target of the last
 * link, which need not exist. */
static int find_place(const char *path, char **ret_path)
{
    _cleanup_free_ char *place = strdup(path);
    int error = place ? 1 : -ENOMEM;
    for (int i = 0; error > 0 && i < LINKS_MAX; i++)
        error = follow(&place);
    if (error != 0)
        return error < 0 ? error : -ELOOP;
    *ret_path = place;
    place = NULL;
    return 0;
}

static bool is_special(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* Opens a file without a name, which is deleted when its writer ends for any reason. Returns -1 if
 * the file system does not support this. */
static int open_nameless(const char *path)
{
    _cleanup_free_ char *folder = folder_of(path);
    if (!folder || access("/proc/self/fd", X_OK) < 0)
        return -1;
    return open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
}

static int open_new(struct whole_file *w)
{
    w->fd = open_nameless(w->path);
    w->is_nameless = w->fd >= 0;
    if (w->fd < 0)
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    return w->fd >= 0 ? 0 : -errno;
}

int whole_file_begin(const char *what, const char *path, struct whole_file *ret_file,
                     struct err *err)
{
    struct whole_file w = {.fd = -1, .what = what};
    if (*path == '\0')
        return err_set(err, -EINVAL, "the path of the %s is empty; name a file", what);
    int error = find_place(path, &w.path);
    if (error < 0)
        return err_set(err, error, "%s %s cannot be written: %s; choose another path", what, path,
                       err_text(error));
    if (is_special(w.path)) {
        whole_file_free(&w);
        return err_set(err, -EINVAL, "%s %s: the path is no regular file; choose another path",
                       what, path);
    }
    if (asprintf(&w.temporary, "%s.tmp-%d-%" PRIu32, w.path, (int)getpid(),
                 atomic_fetch_add(&files_begun, 1)) < 0) {
        w.temporary = NULL;
        whole_file_free(&w);
        return err_set(err, -ENOMEM,
                       "%s %s: this process has no memory for a path; raise its memory limit", what,
                       path);
    }
    error = open_new(&w);
    if (error < 0) {
        whole_file_failed(&w, err, error);
        whole_file_free(&w);
        return error;
    }
    *ret_file = w;
    return 0;
}

/* ---- end ---- */

/* Waits until the folder is on the disk, so that the new name survives a crash of the host. */
static int sync_folder(const char *path)
{
    _cleanup_free_ char *folder = folder_of(path);
    if (!folder)
        return -ENOMEM;
    _cleanup_fd_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* EINVAL: some file systems do not support fsync() of folders */
    return fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
}

static int give_name(struct whole_file *w)
{
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    /* the file may be left from an earlier process with the same process number */
    unlink(w->temporary);
    if (linkat(AT_FDCWD, self, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) < 0)
        return -errno;
    w->is_nameless = false;
    return 0;
}

/* Links the file under its name. Only rename() can replace another file, and rename() needs a name,
 * so the file first gets a temporary name. Signals are blocked until the rename, so that no signal
 * leaves a temporary name. */
static int whole_file_publish(struct whole_file *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = w->is_nameless ? give_name(w) : 0;
    if (error == 0 && rename(w->temporary, w->path) < 0)
        error = -errno;
    if (error < 0 && !w->is_nameless)
        unlink(w->temporary);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int whole_file_finish(struct whole_file *w, struct err *err)
{
    int error = fsync(w->fd) < 0 ? -errno : whole_file_publish(w);
    if (error < 0) {
        whole_file_failed(w, err, error);
        whole_file_abandon(w);
        return error;
    }
    error = sync_folder(w->path);
    if (error < 0)
        whole_file_failed(w, err, error);
    whole_file_free(w);
    return error;
}

void whole_file_abandon(struct whole_file *w)
{
    if (w->temporary && !w->is_nameless)
        unlink(w->temporary);
    whole_file_free(w);
}
