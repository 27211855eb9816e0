/* Marker of a database: a line of fixed length, overwritten after each change. Owns the descriptor
 * until the store closes it. */
#include "svc/coordinator/store/store_marker.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BOOT_BYTES 36
#define LINE_BYTES 160
#define FORM "changes %020" PRIu64 ", on disk %020" PRIu64 ", boot %36s; do not remove\n"

static void read_boot(char boot[BOOT_BYTES + 1])
{
    memset(boot, 0, BOOT_BYTES + 1);
    _cleanup_fd_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, boot, BOOT_BYTES) < BOOT_BYTES)
        snprintf(boot, BOOT_BYTES + 1, "%s", "unknown");
}

int store_marker_read(const char *path, struct store_marker *ret_marker, struct err *err)
{
    char line[LINE_BYTES] = "", boot[BOOT_BYTES + 1], now[BOOT_BYTES + 1];
    struct store_marker *m = ret_marker;
    *m = (struct store_marker){.fd = -1};
    snprintf(m->path, sizeof m->path, "%s-used", path);
    _cleanup_fd_ int fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || read(fd, line, sizeof line - 1) < 0)
        return err_set(err, -errno, "cannot read %s: %s", m->path, err_text(-errno));
    m->is_there = true;
    if (sscanf(line, "changes %" SCNu64 ", on disk %" SCNu64 ", boot %36[^;]", &m->changes,
               &m->synced, boot) == 3) {
        read_boot(now);
        m->is_of_this_boot = strcmp(boot, now) == 0;
    } else {
        m->changes = m->synced =
            /* A power failure has truncated the line. The file then shows only that the database
             * was in use. */
            1;
    }
    return 0;
}

int store_marker_check_file(const struct store_marker *marker, const char *path, struct err *err)
{
    struct stat file;
    bool is_there = stat(path, &file) == 0;
    if (!marker->is_there || (is_there && file.st_size > 0))
        return 0;
    return err_set(
        err, -EBADMSG,
        "%s is %s, but was used before: its tenants, jobs and routes are lost. Restore the file "
        "from a copy, with its log (%s-wal); or move %s* away, to start without jobs and tenants",
        path, is_there ? "empty" : "gone", path, path);
}

int store_marker_check(const struct store_marker *marker, const char *path, uint64_t changes,
                       struct err *err)
{
    uint64_t wanted = marker->is_of_this_boot ? marker->changes : marker->synced;
    if (changes >= wanted) {
        if (changes < marker->changes)
            log_warn("%s lacks the last %" PRIu64
                     " changes, because this host was restarted before they were on disk",
                     path, marker->changes - changes);
        return 0;
    }
    return err_set(err, -EBADMSG,
                   "%s lacks the last %" PRIu64 " of %" PRIu64
                   " changes: its write-ahead log (%s-wal) was lost or damaged. Restore both from "
                   "a copy; or remove %s, to start with the older state; or move %s* away, to "
                   "start without jobs and tenants",
                   path, wanted - changes, wanted, path, marker->path, path);
}

int store_marker_open(struct store_marker *marker, struct err *err)
{
    marker->fd = open(marker->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return marker->fd < 0
               ? err_set(err, -errno,
                         "gradpool serve cannot write %s: %s; check the disk and the folder's mode",
                         marker->path, err_text(-errno))
               : 0;
}

void store_marker_write(struct store_marker *marker)
{
    char line[LINE_BYTES], boot[BOOT_BYTES + 1];
    read_boot(boot);
    int bytes = snprintf(line, sizeof line, FORM, marker->changes, marker->synced, boot);
    if (pwrite(marker->fd, line, (size_t)bytes, 0) != bytes)
        log_warn_rarely("gradpool serve cannot write %s: %s; check the disk and the folder's mode; "
                        "until then a later loss of the log would not be detected",
                        marker->path, err_text(-errno));
}
