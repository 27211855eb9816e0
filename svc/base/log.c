/* Log lines in logfmt, one write(2) each, so that lines of several processes do not mix. Owns the
 * program's name and level. */
#include "svc/base/log.h"

#include "svc/base/clock.h"
#include "svc/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WHO_BYTES 64
#define TEXT_BYTES 1024
/* 96 bytes for time, level and field names */
#define LINE_BYTES (TEXT_BYTES + WHO_BYTES + 96)

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};
static char program[WHO_BYTES] = "gradpool";
typedef void log_hook(enum log_level level, const char *line);

/* Atomic, because level and hook may change while other threads log. */
static _Atomic enum log_level threshold = LOG_LEVEL_INFO;
static log_hook *_Atomic hook;

/* Makes names of jobs and tensors safe: they must not end a line or a field (B5). */
static void tame(char *text)
{
    for (char *c = text; *c; c++) {
        if (*c == '"')
            *c = '\'';
        else if (*c == '\\')
            *c = '/';
        else if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    }
    text_disarm(text);
}

int log_init(const char *who)
{
    snprintf(program, sizeof program, "%s", who);
    tame(program);
    threshold = strcmp(who, "client") == 0 ? LOG_LEVEL_WARN : LOG_LEVEL_INFO;
    const char *wanted = getenv("GRADPOOL_LOG_LEVEL");
    if (!wanted || !*wanted)
        return 0;
    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_TRACE; level++) {
        if (strcmp(wanted, level_names[level]) == 0) {
            threshold = level;
            return 0;
        }
    }
    log_warn("GRADPOOL_LOG_LEVEL=%.64s: expected error, warn, info, debug or trace; using %s",
             wanted, level_names[threshold]);
    return -EINVAL;
}

void log_set_level(enum log_level level) { threshold = level; }
bool log_is_written(enum log_level level) { return level <= threshold; }
void log_set_hook(void (*new_hook)(enum log_level level, const char *line)) { hook = new_hook; }

/* Adds the time, unless journald reads the lines and adds its own. */
static size_t put_time(char *line, size_t line_bytes)
{
    if (getenv("JOURNAL_STREAM"))
        return 0;
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t used = strftime(line, line_bytes, "time=%Y-%m-%dT%H:%M:%S", &utc);
    return used +
           (size_t)snprintf(line + used, line_bytes - used, ".%03ldZ ", now.tv_nsec / 1000000);
}

void log_write(enum log_level level, const char *format, ...)
{
    if (level > threshold)
        return;
    char text[TEXT_BYTES], line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (wanted >= (int)sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    log_hook *receiver = hook;
    if (receiver) {
        receiver(level, text);
        return;
    }
    tame(text);
    size_t used = put_time(line, sizeof line);
    used += (size_t)snprintf(line + used, sizeof line - used, "level=%s who=\"%s\" msg=\"%s\"\n",
                             level_names[level], program, text);
    if (write(STDERR_FILENO, line, used) < 0)
        return; /* ignored, because there is no other place to write the line to */
}

void log_write_rarely(struct log_rate *rate, enum log_level level, const char *format, ...)
{
    uint64_t now_ns = clock_now_ns(), next_ns = rate->next_ns;
    if (now_ns < next_ns ||
        !atomic_compare_exchange_strong(&rate->next_ns, &next_ns, now_ns + NS_PER_S)) {
        rate->left_out++;
        return;
    }
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    uint32_t left_out = atomic_exchange(&rate->left_out, 0);
    if (left_out > 0)
        log_write(level, "%s (and %u more like it before)", text, left_out);
    else
        log_write(level, "%s", text);
}
