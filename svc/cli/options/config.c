/* Passes lines to inih and receives keys from it. Owns the file while it is read. */
#include "svc/cli/options/config.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/base/variables.h"
#include "svc/cli/options/knob.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf"

struct config_reader {
    FILE *stream;
    const char *path;
    const struct config_part *parts;
    size_t parts_count;
    unsigned line, failed_line; /* failed_line: 0: no error so far */
    struct err *err;
};

__attribute__((format(printf, 2, 3))) static void config_fail(struct config_reader *c,
                                                              const char *format, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    if (c->failed_line)
        return;
    c->failed_line = c->line;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_disarm(text);
    err_set(c->err, -EINVAL, "%s:%u: %s", c->path, c->line, text);
}

/* --- lines --- */

static void config_list_parts(const struct config_reader *c, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (size_t i = 0; i < c->parts_count; i++)
        text_append(text, text_bytes, "%s[%s]", i ? " or " : "", c->parts[i].command->part);
}

static const struct config_part *config_find_part(const struct config_reader *c, const char *name,
                                                  size_t name_bytes)
{
    for (size_t i = 0; i < c->parts_count; i++)
        if (strlen(c->parts[i].command->part) == name_bytes &&
            strncmp(c->parts[i].command->part, name, name_bytes) == 0)
            return &c->parts[i];
    return NULL;
}

/* Checks a heading. inih reports a section only together with its first key, and ignores the text
 * after "]", so the heading is checked here. */
static void config_check_heading(struct config_reader *c, const char *line)
{
    char expected[64];
    size_t bytes = strcspn(line + 1, "]");
    const char *behind = line + 1 + bytes;
    if (!*behind)
        return; /* inih itself refuses a heading without "]" */
    behind += 1 + strspn(behind + 1, " \t\r\n");
    config_list_parts(c, expected, sizeof expected);
    if (!config_find_part(c, line + 1, bytes))
        config_fail(c, "no section has the name '%.*s'; expected %s", (int)bytes, line + 1,
                    expected);
    else if (*behind && *behind != ';' && *behind != '#')
        config_fail(
            c, "the line has text after the section's name; put the text on a line of its own");
}

/* Skips the rest of a long comment, and shortens the part that was read. Since release 58, inih
 * refuses a line that fills its buffer. */
static void config_skip_comment(FILE *stream, char *buffer)
{
    for (int c; (c = fgetc(stream)) != EOF && c != '\n';)
        ;
    memcpy(buffer, "#\n", sizeof "#\n");
}

/* Removes blanks before a key. With blanks, inih would treat the line as a continuation of the
 * previous line. */
static void config_trim(char *line, bool is_first)
{
    bool has_mark = is_first && strncmp(line, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0;
    char *start = line + (has_mark ? strlen(BYTE_ORDER_MARK) : 0);
    while (*start && isspace((unsigned char)*start))
        start++;
    memmove(line, start, strlen(start) + 1);
}

static void config_check_line(struct config_reader *c, char *buffer, int buffer_bytes, bool is_text,
                              bool is_whole)
{
    if (!is_text)
        config_fail(c, "the line has a zero byte; give a text file");
    else if (!is_whole && (*buffer == ';' || *buffer == '#'))
        config_skip_comment(c->stream, buffer);
    else if (!is_whole)
        config_fail(c,
                    "the line has more than %d characters; give a long value as a variable or on "
                    "the command line",
                    buffer_bytes - 3);
    else if (*buffer == '[')
        config_check_heading(c, buffer);
}

/* Reads a line for inih, like fgets(). Returns NULL at the end of the file and after an error. */
static char *config_next_line(char *buffer, int buffer_bytes, void *context)
{
    struct config_reader *c = context;
    /* blanks fill the buffer, so that its last zero byte is the terminator that fgets() has
     * written */
    memset(buffer, ' ', (size_t)buffer_bytes);
    if (c->failed_line || !fgets(buffer, buffer_bytes, c->stream))
        return NULL;
    c->line++;
    const char *end = memrchr(buffer, '\0', (size_t)buffer_bytes);
    bool is_text = buffer + strlen(buffer) == end;
    bool is_whole = strchr(buffer, '\n') || feof(c->stream);
    config_trim(buffer, c->line == 1);
    config_check_line(c, buffer, buffer_bytes, is_text, is_whole);
    return c->failed_line ? NULL : buffer;
}

/* --- keys --- */

static bool config_may_hold(const struct knob *knob)
{
    return knob->source != KNOB_LINE && knob->source != KNOB_SECRET;
}

static bool config_has_key(const struct config_part *part, const char *name)
{
    int index = knobs_find(part->command->knobs, name);
    return index >= 0 && config_may_hold(&part->command->knobs[index]);
}

/* Reports an unknown key. The text names the section that has this key, or the most similar key. */
static void config_fail_unknown(struct config_reader *c, const struct config_part *part,
                                const char *name)
{
    const char *names[KNOBS_MAX + 1] = {NULL};
    int count = 0;
    for (const struct knob *knob = part->command->knobs; knob->name; knob++)
        if (config_may_hold(knob))
            names[count++] = knob->name;
    const char *closest = variables_closest(name, names);
    for (size_t i = 0; i < c->parts_count; i++)
        if (&c->parts[i] != part && config_has_key(&c->parts[i], name))
            config_fail(c, "[%s] has no key '%s'; [%s] has this key", part->command->part, name,
                        c->parts[i].command->part);
    if (closest)
        config_fail(c, "[%s] has no key '%s'; did you mean '%s'?", part->command->part, name,
                    closest);
    config_fail(c, "[%s] has no key '%s'; `%s --help' lists all keys", part->command->part, name,
                part->command->name);
}

static void config_store(struct config_reader *c, const struct config_part *part, int index,
                         const char *value)
{
    const struct knob *knob = &part->command->knobs[index];
    struct config_value *kept = &part->values[index];
    struct err why;
    if (!*value) {
        config_fail(c, "%s has no value; give a value, or remove the line for the default",
                    knob->name);
        return;
    }
    /* a value is refused if --print-config could not print it as a line of this file */
    if (!config_can_hold(knob->name, value)) {
        config_fail(c, "%s: the value is too long or has a carriage return; correct the value",
                    knob->name);
        return;
    }
    snprintf(kept->kept, sizeof kept->kept, "%s", value);
    if (knob_store(part->command, index, kept->kept, part->options, &why) < 0)
        config_fail(c, "%s: %s", knob->name, why.text);
    kept->text = kept->kept;
    kept->origin = CONFIG_FILE;
    kept->line = c->line;
}

static int config_take_key(void *context, const char *section, const char *name, const char *value)
{
    struct config_reader *c = context;
    char expected[64];
    const struct config_part *part = config_find_part(c, section, strlen(section));
    int index = part ? knobs_find(part->command->knobs, name) : -1;
    config_list_parts(c, expected, sizeof expected);
    if (!part)
        config_fail(c, "'%s' is before the first section; write %s above this line", name,
                    expected);
    else if (index < 0 || part->command->knobs[index].source == KNOB_LINE)
        config_fail_unknown(c, part, name);
    else if (!config_may_hold(&part->command->knobs[index]))
        config_fail(c, "%s is a secret, which gradpool never reads from a file; remove the line",
                    name);
    else if (part->values[index].origin == CONFIG_FILE)
        config_fail(c, "%s is set twice, also in line %u; keep one of the two lines", name,
                    part->values[index].line);
    else
        config_store(c, part, index, value);
    return !c->failed_line;
}

int config_parse(FILE *stream, const char *path, const struct config_part *parts,
                 size_t parts_count, struct err *err)
{
    struct config_reader c = {stream, path, parts, parts_count, .err = err};
    int line = ini_parse_stream(config_next_line, &c, config_take_key, &c);
    if (ferror(stream))
        return err_set(err, -EIO, "%s: cannot be read: %s; give a text file with --config", path,
                       err_text(-errno));
    if (line > 0 && (!c.failed_line || (unsigned)line < c.failed_line))
        return err_set(err, -EINVAL,
                       "%s:%d: expected KEY = VALUE, [SECTION], or a comment after # or ;", path,
                       line);
    if (line < 0 && !c.failed_line)
        return err_set(err, -ENOMEM,
                       "%s: this process has no memory to read the file; raise its memory limit",
                       path);
    return c.failed_line ? -EINVAL : 0;
}

/* Refuses a file that other users may write. A device such as /dev/null stores nothing, so it is
 * accepted. */
static int config_check_writers(const char *path, int fd, struct err *err)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return err_set(err, -errno, "%s: %s", path, err_text(-errno));
    if (!S_ISREG(status.st_mode))
        return 0;
    if (status.st_uid != 0 && status.st_uid != geteuid())
        return err_set(err, -EPERM,
                       "%s: the file belongs to user %u, who could change this service; give the "
                       "file to root or to user %u with chown",
                       path, (unsigned)status.st_uid, (unsigned)geteuid());
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, -EPERM,
                       "%s: with mode %03o other users can write the file, and so change this "
                       "service; check the file's content, then run chmod go-w %s",
                       path, (unsigned)status.st_mode & 0777, path);
    return 0;
}

int config_read(const char *path, const struct config_part *parts, size_t parts_count,
                struct err *err)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        int error = -errno;
        return err_set(err, error == -ENOTDIR ? -ENOENT : error,
                       "%s: cannot be read: %s; make the file readable, or give another one with "
                       "--config",
                       path, err_text(error));
    }
    int error = config_check_writers(path, fd, err);
    if (error < 0)
        return error;
    FILE *stream = fdopen(fd, "r");
    if (!stream)
        return err_set(err, -errno, "%s: %s", path, err_text(-errno));
    (void)take_fd(&fd);
    error = config_parse(stream, path, parts, parts_count, err);
    fclose(stream);
    return error;
}

/* --- writing --- */

bool config_can_hold(const char *name, const char *value)
{
    size_t bytes = strlen(value);
    bool has_blank_end =
        bytes == 0 || isspace((unsigned char)value[0]) || isspace((unsigned char)value[bytes - 1]);
    if (has_blank_end || *value == ';' || strpbrk(value, "\r\n") ||
        strlen(name) + strlen(" = ") + bytes >= CONFIG_LINE_BYTES)
        return false;
    for (const char *at = value; (at = strchr(at, ';')); at++)
        if (isspace((unsigned char)at[-1]))
            return false;
    return true;
}

void config_origin(const char *path, const char *name, const struct config_value *value,
                   char *buffer, size_t buffer_bytes)
{
    switch (value->origin) {
    case CONFIG_UNSET:
    case CONFIG_PRESET: snprintf(buffer, buffer_bytes, "default"); break;
    case CONFIG_FILE: snprintf(buffer, buffer_bytes, "%s:%u", path, value->line); break;
    case CONFIG_VARIABLE: knobs_variable(name, buffer, buffer_bytes); break;
    case CONFIG_LINE: snprintf(buffer, buffer_bytes, "--%s", name); break;
    }
    text_disarm(buffer);
}
