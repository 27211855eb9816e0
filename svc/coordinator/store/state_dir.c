/* The state directory, and the lock that prevents a second coordinator. Owns nothing. */
#include "svc/coordinator/store/state_dir.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

static int cannot(struct err *err, const char *what, const char *path)
{
    int error = -errno;
    return err_set(err, error, "cannot %s %s: %s (choose another place with --state-dir)", what,
                   path, err_text(error));
}

int state_dir_whole(const char *path, char *buffer, size_t buffer_bytes, struct err *err)
{
    char here[PATH_MAX] = "";
    bool is_whole = *path == '/';
    if (!*path)
        return err_set(err, -EINVAL, "--state-dir: the path is empty");
    if (!is_whole && !getcwd(here, sizeof here))
        return err_set(err, -EINVAL,
                       "--state-dir %s: the current folder has no path (%s); give an absolute one",
                       path, err_text(-errno));
    int bytes = snprintf(buffer, buffer_bytes, "%s%s%s", here, is_whole ? "" : "/", path);
    if (bytes >= (int)buffer_bytes)
        return err_set(err, -EINVAL, "--state-dir: the path is too long; give a shorter one");
    return 0;
}

/* Checks a parent of the state directory: other users must not be able to replace its entries. The
 * sticky bit (as on /tmp) prevents this as well. */
static int check_above(const char *path, struct err *err)
{
    struct stat folder;
    if (stat(path, &folder) < 0)
        return cannot(err, "find", path);
    bool is_open = S_ISDIR(folder.st_mode) && (folder.st_mode & S_IWOTH);
    if (!is_open || (folder.st_mode & S_ISVTX))
        return 0;
    return err_set(err, -EPERM,
                   "%s has mode %04o, so any user can replace a state dir below it: chmod o-w %s, "
                   "or choose another place with --state-dir",
                   path, folder.st_mode & 07777, path);
}

/* Checks owner and mode, because the files in the state directory are trusted: keys, routes and the
 * operators' socket. */
static int check_own(const char *path, struct err *err)
{
    struct stat folder;
    if (stat(path, &folder) < 0)
        return cannot(err, "find", path);
    if (!S_ISDIR(folder.st_mode))
        return err_set(err, -ENOTDIR,
                       "state dir %s is not a folder; choose another place with "
                       "--state-dir",
                       path);
    if (folder.st_uid != geteuid() && folder.st_uid != 0)
        return err_set(err, -EPERM,
                       "state dir %s (mode %04o) belongs to user %u, not to user %u, who runs "
                       "gradpool serve: chown it, or choose another place with --state-dir",
                       path, folder.st_mode & 07777, folder.st_uid, geteuid());
    if (folder.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, -EPERM,
                       "state dir %s has mode %04o, so other users can replace its files: check "
                       "the files, then chmod go-w %s, or choose another place with --state-dir",
                       path, folder.st_mode & 07777, path);
    return 0;
}

int state_dir_create(const char *path, struct err *err)
{
    char partial[PATH_MAX];
    if (snprintf(partial, sizeof partial, "%s", path) >= (int)sizeof partial)
        return err_set(err, -ENAMETOOLONG, "--state-dir: the path is too long; give a shorter one");
    for (char *slash = partial + 1; *slash; slash++) {
        if (*slash != '/')
            continue;
        *slash = 0;
        if (mkdir(partial, 0755) < 0 && errno != EEXIST)
            return cannot(err, "create", partial);
        int error = check_above(partial, err);
        if (error < 0)
            return error;
        *slash = '/';
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return cannot(err, "create", path);
    return check_own(path, err);
}

static int find_group(const char *name, gid_t *ret_gid, struct err *err)
{
    uint64_t number;
    const struct group *group = getgrnam(name);
    if (!group && text_parse_u64(name, 0, UINT32_MAX - 1, &number) < 0)
        return err_set(err, -EINVAL, "--operators %s: there is no such group on this host", name);
    *ret_gid = group ? group->gr_gid : (gid_t)number;
    return 0;
}

int state_dir_admit(const char *path, const char *socket, const char *group, struct err *err)
{
    gid_t gid = 0;
    int error = find_group(group, &gid, err);
    if (error < 0)
        return error;
    if (chown(socket, (uid_t)-1, gid) < 0 || chown(path, (uid_t)-1, gid) < 0 ||
        chmod(path, 0710) < 0)
        return err_set(
            err, -errno,
            "--operators %s: cannot give %s and its socket to that group: %s (the "
            "user of gradpool serve must own the folder and be in the group, or be root)",
            group, path, err_text(-errno));
    return 0;
}

static void describe_self(int fd)
{
    char line[128];
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    int bytes = snprintf(line, sizeof line, "pid %d, since ", (int)getpid());
    bytes += (int)strftime(line + bytes, sizeof line - (size_t)bytes, "%Y-%m-%dT%H:%M:%SZ", &utc);
    /* The line is only for the error message of a second coordinator. The lock itself is
     * flock(). */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, line, (size_t)bytes, 0) < 0)
        return;
}

int state_dir_lock(const char *path, int *ret_fd, struct err *err)
{
    char file[PATH_MAX + 8], holder[128] = "";
    snprintf(file, sizeof file, "%s/lock", path);
    _cleanup_fd_ int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ELOOP)
        return err_set(
            err, -ELOOP,
            "%s is a symbolic link, which gradpool serve does not follow: remove the link", file);
    if (fd < 0)
        return cannot(err, "write", file);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return cannot(err, "lock", file);
        ssize_t got = pread(fd, holder, sizeof holder - 1, 0);
        return err_set(err, -EBUSY, "state dir %s is in use by gradpool serve, %s", path,
                       got > 0 ? holder : "starting just now");
    }
    describe_self(fd);
    *ret_fd = take_fd(&fd);
    return 0;
}
