/* Forwards a worker's output line by line, so that lines of several workers do not mix. Owns the
 * pipe and the text of an unfinished line. No byte is lost, and no character is split. */
#include "svc/cli/run/run_output.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM_FIRST 4096
#define ROOM_MAX (1u << 20)
/* Longest wait for the end of a line. A progress bar may write no line end for minutes. */
#define WAIT_NS (500 * NS_PER_MS)

void run_output_init(struct run_output *o, int fd, FILE *to, struct run_screen *screen,
                     uint32_t rank)
{
    *o = (struct run_output){
        .fd = fd, .to = to, .screen = screen, .rank = rank, .due_ns = UINT64_MAX, .before = '\n'};
}

/* --- output --- */

void run_screen_break(struct run_screen *screen, FILE *to)
{
    struct run_output *last = screen->last;
    if (last && last->before != '\n') {
        fputc('\n', to);
        fflush(to);
        last->before = '\n';
    }
    screen->last = NULL;
}

/* Writes a line or a part of one. A progress bar may overwrite another worker's progress bar, but
 * no other text. */
static void write_piece(struct run_output *o, const char *text, size_t bytes)
{
    const struct run_output *last = o->screen->last;
    bool is_over_bar = last && last->before == '\r' && text[bytes - 1] == '\r';
    if (last != o && !is_over_bar)
        run_screen_break(o->screen, o->to);
    if (o->before == '\n' || (o->before == '\r' && text[0] != '\n'))
        fprintf(o->to, "[%u] ", o->rank);
    fwrite(text, 1, bytes, o->to);
    o->before = text[bytes - 1];
    o->screen->last = o;
}

/* Returns the length of the first line. CR also ends a line, unless LF follows. */
static size_t line_bytes(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\n' || (text[i] == '\r' && (i + 1 == bytes || text[i + 1] != '\n')))
            return i + 1;
    return bytes;
}

static void show(struct run_output *o, size_t bytes)
{
    size_t piece;
    if (bytes == 0)
        return;
    for (size_t at = 0; at < bytes; at += piece) {
        piece = line_bytes(o->text + at, bytes - at);
        write_piece(o, o->text + at, piece);
    }
    fflush(o->to);
    o->have -= bytes;
    memmove(o->text, o->text + bytes, o->have);
    o->due_ns = UINT64_MAX;
}

/* --- complete text --- */

/* Returns the number of bytes up to the last line end. The last CR counts only after the next byte
 * has arrived, because LF may follow. */
static size_t whole_lines(const struct run_output *o)
{
    size_t end = o->have;
    while (end > 0 && o->text[end - 1] != '\n' && (o->text[end - 1] != '\r' || end == o->have))
        end--;
    return end;
}

/* Returns the number of bytes without an incomplete UTF-8 character at the end. */
static size_t whole_characters(const struct run_output *o)
{
    size_t behind = 0; /* number of continuation bytes at the end */
    while (behind < 3 && behind < o->have && (o->text[o->have - 1 - behind] & 0xc0) == 0x80)
        behind++;
    if (behind == o->have)
        return o->have;
    unsigned char first = (unsigned char)o->text[o->have - 1 - behind];
    size_t belong = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    return behind < belong ? o->have - 1 - behind : o->have;
}

/* --- input --- */

static bool grow(struct run_output *o)
{
    size_t room = o->room ? 2 * o->room : ROOM_FIRST;
    char *text = room <= ROOM_MAX ? realloc(o->text, room) : NULL;
    if (!text)
        return false;
    o->text = text;
    o->room = room;
    return true;
}

void run_output_read(struct run_output *o)
{
    if (o->have == o->room && !grow(o))
        /* a line that is longer than the buffer is printed in parts */
        show(o, whole_characters(o));
    ssize_t got = read(o->fd, o->text + o->have, o->room - o->have);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0) /* the pipe is closed, or memory is missing */
        return run_output_end(o);
    o->have += (size_t)got;
    show(o, whole_lines(o));
    if (o->have > 0 && o->due_ns == UINT64_MAX)
        o->due_ns = clock_now_ns() + WAIT_NS;
}

void run_output_hurry(struct run_output *o, uint64_t now_ns)
{
    if (now_ns < o->due_ns)
        return;
    o->due_ns = UINT64_MAX;
    show(o, whole_characters(o));
}

void run_output_end(struct run_output *o)
{
    if (o->fd < 0)
        return;
    show(o, o->have);
    if (o->screen->last == o)
        run_screen_break(o->screen, o->to);
    close(o->fd);
    o->fd = -1;
    free(o->text);
    o->text = NULL;
    o->have = o->room = 0;
}
