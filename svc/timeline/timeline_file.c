/* File of a timeline. Each batch is one write, after which the file is complete. If the write
 * fails, the file has its former contents. Owns the descriptor. timeline_picture.c creates the
 * text. README: E1, E2. */
#include "svc/timeline/timeline_file.h"

#include "svc/timeline/timeline_picture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct timeline_file {
    int fd;
    /* Text of the batch, in memory. A forked child could write the buffer of a FILE of the
     * descriptor a second time. */
    char *text;
    size_t text_bytes;
    char *path, *job;
    bool is_new, has_begun, is_stream;
    int error;                   /* first error, after which nothing is written */
    bool is_kept;                /* the file still has all batches from before the error */
    off_t end;                   /* offset of the next event */
    struct timeline_totals kept; /* totals of the file up to `end` */
    struct picture picture;
};

/* Appends the text that completes the file. The next batch overwrites it. */
static void put_end(struct timeline_file *f)
{
    fprintf(f->picture.out,
            "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"gradpool\","
            "\"job\":\"%s\",\"rounds\":\"%" PRIu64 "\",\"dropped\":\"%" PRIu64 "\"}}\n",
            f->job ? f->job : "", f->picture.totals.rounds, f->picture.totals.dropped);
}

static bool begin_text(struct timeline_file *f)
{
    f->picture.out = open_memstream(&f->text, &f->text_bytes);
    return f->picture.out;
}

/* Returns the negative error of a file operation. EINVAL and EPIPE have another meaning for a
 * timeline, so -EIO is returned instead. */
static int own_error(int error) { return error == EINVAL || error == EPIPE ? -EIO : -error; }

static ssize_t write_some(const struct timeline_file *f, size_t at)
{
    const char *text = f->text + at;
    size_t bytes = f->text_bytes - at;
    return f->is_stream ? write(f->fd, text, bytes)
                        : pwrite(f->fd, text, bytes, f->end + (off_t)at);
}

static int write_text(struct timeline_file *f)
{
    int error = ferror(f->picture.out) ? -ENOMEM : 0;
    if (fclose(f->picture.out) != 0)
        error = -ENOMEM;
    f->picture.out = NULL;
    for (size_t at = 0; error == 0 && at < f->text_bytes;) {
        ssize_t written = write_some(f, at);
        if (written >= 0)
            at += (size_t)written;
        else if (errno != EINTR)
            error = own_error(errno);
    }
    free(f->text);
    f->text = NULL;
    return error;
}

/* Writes the former end over a failed batch. This needs no more room than the file had before. */
static bool write_last_end(struct timeline_file *f)
{
    if (!begin_text(f))
        return false;
    if (f->end > 0)
        put_end(f);
    fflush(f->picture.out);
    off_t bytes = (off_t)f->text_bytes;
    return write_text(f) == 0 && ftruncate(f->fd, f->end + bytes) == 0;
}

static void give_up(struct timeline_file *f, int error)
{
    f->error = error;
    f->picture.totals = f->kept;
    f->is_kept = !f->is_stream && write_last_end(f) && f->end > 0;
}

static void write_batch(struct timeline_file *f)
{
    fflush(f->picture.out);
    size_t events_bytes = f->text_bytes;
    if (!f->is_stream)
        put_end(f);
    int error = write_text(f);
    if (error < 0)
        return give_up(f, error);
    f->end += (off_t)events_bytes;
    f->kept = f->picture.totals;
}

void timeline_file_add(struct timeline_file *f, const Gradpool__Wire__TimelineNext *next)
{
    if (f->error)
        return;
    if (!begin_text(f))
        return give_up(f, -ENOMEM);
    picture_add(&f->picture, next);
    write_batch(f);
}

int timeline_file_open(const char *path, struct timeline_file **ret_file, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool is_new = fd >= 0;
    if (!is_new && errno == EEXIST)
        fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, own_error(errno), "the timeline %.300s cannot be written: %s", path,
                       err_text(-errno));
    struct timeline_file *f = calloc(1, sizeof *f);
    char *copy = strdup(path);
    if (!f || !copy) {
        free(f);
        free(copy);
        close(fd);
        return err_set(
            err, -ENOMEM,
            "timeline %.300s: this process has no memory for the file; raise its memory limit",
            path);
    }
    *f = (struct timeline_file){.fd = fd, .path = copy, .is_new = is_new};
    *ret_file = f;
    return 0;
}

/* Truncates the file, unless it is a pipe or a device. */
static int cut(struct timeline_file *f)
{
    struct stat about;
    if (fstat(f->fd, &about) < 0)
        return own_error(errno);
    f->is_stream = !S_ISREG(about.st_mode);
    return f->is_stream || ftruncate(f->fd, 0) == 0 ? 0 : own_error(errno);
}

void timeline_file_begin(struct timeline_file *f, const char *job, uint64_t begun_ns)
{
    f->job = picture_escape(job);
    f->picture.begun_ns = begun_ns;
    f->error = cut(f);
    if (f->error)
        return;
    if (!begin_text(f))
        return give_up(f, -ENOMEM);
    fputs("{\"traceEvents\":[\n", f->picture.out);
    write_batch(f);
    f->has_begun = f->error == 0;
}

int timeline_file_check(const struct timeline_file *f, struct err *err)
{
    if (f->is_kept)
        return err_set(err, f->error,
                       "the timeline %.300s is incomplete: %s; the file has the first %" PRIu64
                       " rounds",
                       f->path, err_text(f->error), f->kept.rounds);
    return f->error ? err_set(err, f->error, "the timeline %.300s could not be written: %s",
                              f->path, err_text(f->error))
                    : 0;
}

int timeline_file_fd(const struct timeline_file *f) { return f->fd; }

static void file_free(struct timeline_file *f)
{
    picture_fini(&f->picture);
    free(f->path);
    free(f->job);
    free(f);
}

/* Completes the file. The end of a stream (a pipe or a device) is written only here, because a
 * stream cannot be overwritten. */
static void finish(struct timeline_file *f)
{
    if (f->has_begun && f->is_stream && !f->error && begin_text(f)) {
        put_end(f);
        f->error = write_text(f);
    }
    if (close(f->fd) < 0 && !f->error)
        f->error = own_error(errno);
    if (!f->has_begun && f->is_new)
        unlink(f->path);
}

int timeline_file_close(struct timeline_file *f, struct timeline_totals *ret_totals,
                        struct err *err)
{
    if (!f)
        return 0;
    finish(f);
    int error = timeline_file_check(f, err);
    picture_name_failure(&f->picture);
    if (ret_totals)
        *ret_totals = f->picture.totals;
    file_free(f);
    return error;
}
