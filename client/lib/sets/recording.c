/* Writes the sets of a job to a file, one line a round. The leader lane sends sets and takers in an
 * order in which every beginning of the file is a whole recording. Another leader lane, or another
 * connection to it, may have lost records. The recording then ends with a warning, and the file
 * stays valid up to its last line. */
#include "client/lib/sets/sets.h"
#include "client/lib/sets/sets_file.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sets_recording {
    int fd; /* -1: the recording has ended */
    char *path;
    const char *job; /* its name */
    uint64_t sum;
    uint64_t last; /* newest written round */
    uint64_t began_ns;
    struct sets_way from; /* sender of the records; no opening: no record has arrived yet */
};

static void recording_end(struct sets_recording *r, const char *why)
{
    log_warn("job '%s': the recording %s ends after round %" PRIu64
             ", because %s; a replay has the same bits up to that round",
             r->job, r->path, r->last, why);
    close(r->fd);
    r->fd = -1;
}

/* Writes a line at once, so that a killed process leaves a whole recording. Returns 0 or -errno. */
static int recording_put(struct sets_recording *r, const struct sets_line *line)
{
    char text[SETS_LINE_BYTES];
    size_t bytes = sets_line_write(line, &r->sum, text);
    ssize_t written = write(r->fd, text, bytes);
    return written < 0 ? -errno : (size_t)written < bytes ? -ENOSPC : 0;
}

static void recording_write(struct sets_recording *r, const struct sets_line *line)
{
    char why[ERR_TEXT_BYTES];
    int error = recording_put(r, line);
    snprintf(why, sizeof why, "the file cannot be written (%s)", err_text(error));
    if (error < 0)
        recording_end(r, why);
}

/* ---- open and close ---- */

static int recording_create(struct sets_recording *r, const struct backup_terms *terms,
                            uint32_t workers, struct err *err)
{
    struct sets_line head = {.kind = SETS_HEAD, .workers = workers};
    struct backup_terms plain = *terms;
    plain.sets = 0;
    backup_terms_write(&plain, workers, head.rule, sizeof head.rule);
    r->fd = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (r->fd < 0 && errno == EEXIST)
        return err_set(err, -EEXIST,
                       "job '%s': the file of the recording, %.200s, exists; name another file, or "
                       "move that one away",
                       r->job, r->path);
    int error = r->fd < 0 ? -errno : recording_put(r, &head);
    if (error < 0)
        err_set(err, error,
                "job '%s': the recording %.200s cannot be written: %s; name another file", r->job,
                r->path, err_text(error));
    return error;
}

int sets_recording_open(const char *path, const struct gp_job *job,
                        const struct backup_terms *terms, uint32_t workers,
                        struct sets_recording **ret_recording, struct err *err)
{
    struct sets_recording *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(path))) {
        free(r);
        return err_set(err, -ENOMEM, "job '%s': this process has no memory for the recording",
                       job->name);
    }
    r->job = job->name;
    int error = recording_create(r, terms, workers, err);
    if (error == 0)
        *ret_recording = r;
    else
        sets_recording_close(r);
    return error;
}

/* Removes the file if it contains no round, for example after a failed join. A replay could not use
 * the file, and the next attempt would fail because the file exists. Another file with the same
 * name stays. */
static void recording_remove_empty(const struct sets_recording *r)
{
    struct stat mine, found;
    bool is_mine = fstat(r->fd, &mine) == 0 && lstat(r->path, &found) == 0 &&
                   mine.st_dev == found.st_dev && mine.st_ino == found.st_ino;
    if (is_mine && r->last == 0)
        /* if unlink() fails, the file stays, and its name cannot be used again */
        (void)unlink(r->path);
}

void sets_recording_close(struct sets_recording *r)
{
    if (!r)
        return;
    if (r->fd >= 0) {
        recording_remove_empty(r);
        close(r->fd);
    }
    free(r->path);
    free(r);
}

/* ---- records ---- */

static bool recording_knows(struct sets_recording *r, const struct sets_way *from)
{
    if (r->from.openings == 0)
        r->from = *from;
    return r->from.lane == from->lane && r->from.openings == from->openings &&
           r->from.epoch == from->epoch;
}

static void recording_take_set(struct sets_recording *r, const struct record_chosen *set)
{
    struct sets_line line = {.kind = SETS_ROUND, .round = set->round, .reason = set->reason};
    uint64_t now_ns = clock_now_ns();
    if (r->last == 0)
        r->began_ns = now_ns;
    line.ns = now_ns - r->began_ns;
    memcpy(line.ranks, set->ranks, sizeof line.ranks);
    recording_write(r, &line);
    r->last = set->round;
}

void sets_recording_hear(struct sets_recording *r, const struct sets_way *from,
                         const struct record_chosen *passed)
{
    struct sets_line took = {.kind = SETS_TOOK, .round = passed->round};
    if (r->fd < 0)
        return;
    if (!recording_knows(r, from)) {
        recording_end(r, "another lane or connection decides the rounds now");
    } else if (passed->form == RECORD_FORM_TAKERS) {
        memcpy(took.ranks, passed->ranks, sizeof took.ranks);
        recording_write(r, &took);
    } else if (passed->round != r->last + 1 || passed->form != RECORD_FORM_RANKS) {
        recording_end(r, "the set of the next round has not arrived");
    } else {
        recording_take_set(r, passed);
    }
}
