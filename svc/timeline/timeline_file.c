/* The file of a timeline: each batch one write, and whole behind it. Owns the descriptor; what is
 * written is timeline_picture.c's. README: E1, E2. */
#include "svc/timeline/timeline_file.h"

#include "svc/timeline/timeline_picture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct timeline_file {
    int fd;
    char *text; /* what is put together, in memory: no forked child must write it, too */
    size_t text_bytes;
    char *path, *job;
    bool is_new, has_begun, is_stream;
    int error; /* the first */
    off_t end; /* where the next event goes */
    struct picture picture;
};

/* What makes it whole, to be written over by what comes next: it may be the last. */
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
    if (!f->picture.out && !f->error)
        f->error = -ENOMEM;
    return f->picture.out;
}

static ssize_t write_some(const struct timeline_file *f, size_t at)
{
    const char *text = f->text + at;
    size_t bytes = f->text_bytes - at;
    return f->is_stream ? write(f->fd, text, bytes)
                        : pwrite(f->fd, text, bytes, f->end + (off_t)at);
}

/* Events, and behind `events_bytes` of them the end. */
static void write_text(struct timeline_file *f, size_t events_bytes)
{
    bool is_whole = fclose(f->picture.out) == 0;
    f->picture.out = NULL;
    for (size_t at = 0; is_whole && at < f->text_bytes && !f->error;) {
        ssize_t written = write_some(f, at);
        if (written >= 0)
            at += (size_t)written;
        else if (errno != EINTR)
            f->error = -errno;
    }
    if (!is_whole && !f->error)
        f->error = -ENOMEM;
    f->end += (off_t)events_bytes;
    free(f->text);
    f->text = NULL;
}

static void write_batch(struct timeline_file *f)
{
    fflush(f->picture.out);
    size_t events_bytes = f->text_bytes;
    if (!f->is_stream)
        put_end(f);
    write_text(f, events_bytes);
}

void timeline_file_add(struct timeline_file *f, const Gradpool__Wire__TimelineNext *next)
{
    if (!begin_text(f))
        return;
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
        return err_set(err, -errno, "cannot write %.300s: %s", path, err_text(-errno));
    struct timeline_file *f = calloc(1, sizeof *f);
    char *copy = strdup(path);
    if (!f || !copy) {
        free(f);
        free(copy);
        close(fd);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *f = (struct timeline_file){.fd = fd, .path = copy, .is_new = is_new};
    *ret_file = f;
    return 0;
}

void timeline_file_begin(struct timeline_file *f, const char *job, uint64_t begun_ns)
{
    f->job = picture_escape(job);
    f->picture.begun_ns = begun_ns;
    f->has_begun = true;
    f->is_stream = lseek(f->fd, 0, SEEK_CUR) < 0;
    if (ftruncate(f->fd, 0) < 0 && !f->is_stream)
        f->error = -errno;
    if (!begin_text(f))
        return;
    fputs("{\"traceEvents\":[\n", f->picture.out);
    write_batch(f);
}

int timeline_file_fd(const struct timeline_file *f) { return f->fd; }

static void file_free(struct timeline_file *f)
{
    picture_fini(&f->picture);
    free(f->path);
    free(f->job);
    free(f);
}

int timeline_file_close(struct timeline_file *f, struct timeline_totals *ret_totals,
                        struct err *err)
{
    int r = 0;
    if (!f)
        return 0;
    if (f->has_begun && f->is_stream && begin_text(f)) {
        put_end(f);
        write_text(f, 0);
    }
    if (close(f->fd) < 0 && !f->error)
        f->error = -errno;
    if (!f->has_begun && f->is_new)
        unlink(f->path);
    if (f->error)
        r = err_set(err, f->error, "%.300s could not be written to its end: %s", f->path,
                    err_text(f->error));
    picture_name_failure(&f->picture);
    if (ret_totals)
        *ret_totals = f->picture.totals;
    file_free(f);
    return r;
}
