/* Owns one buffer for the lines. When the buffer is full, its first half is dropped. */
#include "test/lib/kept_log.h"

#include "svc/base/log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char lines[1 << 20];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void keep(enum log_level level, const char *line)
{
    (void)level;
    size_t bytes = strlen(line) + 1;
    pthread_mutex_lock(&lock);
    if (used + bytes > sizeof lines) {
        used = sizeof lines / 2;
        memmove(lines, lines + sizeof lines - used, used);
    }
    memcpy(lines + used, line, bytes);
    used += bytes;
    pthread_mutex_unlock(&lock);
    if (getenv("GRADPOOL_LOG_LEVEL"))
        fprintf(stderr, "# %s\n", line);
}

void kept_log_begin(void)
{
    pthread_mutex_lock(&lock);
    used = 0;
    pthread_mutex_unlock(&lock);
    log_set_level(LOG_LEVEL_DEBUG);
    log_set_hook(keep);
}

size_t kept_log_count(const char *words)
{
    size_t count = 0, bytes = strlen(words);
    pthread_mutex_lock(&lock);
    for (const char *at = lines; (at = memmem(at, used - (size_t)(at - lines), words, bytes));
         at += bytes)
        count++;
    pthread_mutex_unlock(&lock);
    return count;
}

void kept_log_expect(const char *words)
{
    if (kept_log_count(words) == 0)
        fail_msg("no line of the log has the words: %s", words);
}
