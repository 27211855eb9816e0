/* Writes the file of a snapshot. The file has no name, or a temporary one, until it is complete and
 * on the disk. The requested name therefore never refers to an incomplete file. README: D1. */
#include "svc/state/state_write.h"

#include "svc/base/cleanup.h"
#include "svc/reduce/update.h"
#include "svc/state/state_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* maximum number of successive symbolic links, as in the kernel */

static int failed(const struct state_writer *w, struct err *err, int code)
{
    return err_set(err, code, "snapshot %s cannot be written: %s; choose another path", w->path,
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

/* ---- begin ---- */

static uint64_t index_bytes(const struct state_writer *w)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->count; i++)
        bytes += state_entry_bytes(strlen(w->tensors[i].name));
    return bytes;
}

static void lay_out(struct state_writer *w)
{
    uint64_t end = sizeof(struct state_header) + index_bytes(w);
    for (size_t i = 0; i < w->count; i++) {
        w->tensors[i].offset = state_round_up(end, STATE_ALIGN);
        end = w->tensors[i].offset + state_tensor_bytes(&w->tensors[i]);
    }
    w->file_bytes = end;
}

static void writer_free(struct state_writer *w)
{
    cleanup_fd(&w->fd);
    free(w->path);
    free(w->temporary);
    free(w->tensors);
    *w = (struct state_writer){.fd = -1};
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t bytes = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    return bytes ? strndup(path, bytes) : strdup(".");
}

/* Replaces the path of a symbolic link by its target, relative to the folder of the link. Returns 1
 * if it was replaced, 0 if it is no link, or -ENOMEM. */
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

static int open_new(struct state_writer *w)
{
    w->fd = open_nameless(w->path);
    w->is_nameless = w->fd >= 0;
    if (w->fd < 0)
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (w->fd >= 0 && ftruncate(w->fd, (off_t)w->file_bytes) == 0)
        return 0;
    int error = -errno;
    if (w->fd >= 0 && !w->is_nameless)
        unlink(w->temporary);
    return error;
}

/* Returns whether state_file.c could read the tensors again. The caller may have received them from
 * another process. */
static bool can_be_written(const struct state_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct state_tensor *t = &tensors[i];
        if (t->dtype != REDUCE_F32 || update_moments(t->rule) < 0 ||
            t->elements > STATE_ELEMENTS_MAX || strlen(t->name) > STATE_NAME_BYTES_MAX ||
            (i > 0 && strcmp(tensors[i - 1].name, t->name) >= 0))
            return false;
    }
    return true;
}

int state_write_begin(const char *path, const struct state_tensor *tensors, size_t count,
                      struct state_writer *ret_writer, struct err *err)
{
    struct state_writer w = {.fd = -1, .count = count};
    if (!can_be_written(tensors, count))
        return err_set(err, -EINVAL, "snapshot %s: the tensors are unsorted, or one has no arrays",
                       path);
    if (*path == '\0')
        return err_set(err, -EINVAL, "the path of the snapshot is empty; name a file");
    int error = find_place(path, &w.path);
    if (error < 0)
        return err_set(err, error, "snapshot %s cannot be written: %s; choose another path", path,
                       err_text(error));
    if (is_special(w.path)) {
        writer_free(&w);
        return err_set(err, -EINVAL,
                       "snapshot %s: the path is no regular file; choose another path", path);
    }
    w.tensors = calloc(count + 1, sizeof *w.tensors);
    if (!w.tensors || asprintf(&w.temporary, "%s.tmp-%d", w.path, (int)getpid()) < 0) {
        w.temporary = NULL;
        writer_free(&w);
        return err_set(
            err, -ENOMEM,
            "snapshot %s: this process has no memory for %zu tensors; raise its memory limit", path,
            count);
    }
    if (count > 0)
        memcpy(w.tensors, tensors, count * sizeof *tensors);
    lay_out(&w);
    error = open_new(&w);
    if (error < 0) {
        failed(&w, err, error);
        writer_free(&w);
        return error;
    }
    *ret_writer = w;
    return 0;
}

int state_write_put(struct state_writer *w, size_t at, uint64_t steps, uint64_t round,
                    const void *data, struct err *err)
{
    struct state_tensor *t = &w->tensors[at];
    t->steps = steps;
    t->round = round;
    t->sum = state_sum(data, state_tensor_bytes(t));
    int error = write_all(w->fd, data, state_tensor_bytes(t), t->offset);
    return error < 0 ? failed(w, err, error) : 0;
}

/* ---- end ---- */

static void fill_index(const struct state_writer *w, char *ret_index)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct state_tensor *t = &w->tensors[i];
        size_t name_bytes = strlen(t->name);
        const struct state_entry e = {.elements = t->elements,
                                      .steps = t->steps,
                                      .round = t->round,
                                      .offset = t->offset,
                                      .sum = t->sum,
                                      .name_bytes = (uint16_t)name_bytes,
                                      .dtype = t->dtype,
                                      .rule = t->rule};
        memcpy(ret_index, &e, sizeof e);
        memcpy(ret_index + sizeof e, t->name, name_bytes);
        ret_index += state_entry_bytes(name_bytes);
    }
}

static int write_index(const struct state_writer *w)
{
    struct state_header h = {.magic = STATE_MAGIC,
                             .version = STATE_FILE_VERSION,
                             .tensors = (uint32_t)w->count,
                             .file_bytes = w->file_bytes,
                             .index_bytes = index_bytes(w)};
    _cleanup_free_ char *index = calloc(1, h.index_bytes + 1);
    if (!index)
        return -ENOMEM;
    fill_index(w, index);
    h.index_sum = state_sum(index, h.index_bytes);
    h.header_sum = state_sum(&h, offsetof(struct state_header, header_sum));
    int error = write_all(w->fd, index, h.index_bytes, sizeof h);
    return error < 0 ? error : write_all(w->fd, &h, sizeof h, 0);
}

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

static int give_name(struct state_writer *w)
{
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    unlink(w->temporary); /* left by an earlier process with the same process number */
    if (linkat(AT_FDCWD, self, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) < 0)
        return -errno;
    w->is_nameless = false;
    return 0;
}

/* Links the file under its name. Only rename() can replace another file, and rename() needs a name,
 * so the file first gets a temporary name. Signals are blocked until the rename, so that no signal
 * leaves a temporary name. */
static int publish(struct state_writer *w)
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

int state_write_finish(struct state_writer *w, struct err *err)
{
    int error = write_index(w);
    if (error == 0 && fsync(w->fd) < 0)
        error = -errno;
    if (error == 0)
        error = publish(w);
    if (error < 0) {
        failed(w, err, error);
        state_write_abandon(w);
        return error;
    }
    error = sync_folder(w->path);
    if (error < 0)
        failed(w, err, error);
    writer_free(w);
    return error;
}

void state_write_abandon(struct state_writer *w)
{
    if (w->temporary && !w->is_nameless)
        unlink(w->temporary);
    writer_free(w);
}
