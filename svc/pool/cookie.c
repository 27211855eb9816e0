/* Text of a cookie. Owns nothing, and makes no system call. */
#include "svc/pool/cookie.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PID_DIGITS 10

void cookie_write(const struct cookie *cookie, const char *job, char text[COOKIE_BYTES])
{
    snprintf(text, COOKIE_BYTES, COOKIE_VARIABLE "=%016" PRIx64 ":%" PRIu32 ":%" PRIu64 ":%0*u:%s",
             cookie->pool, cookie->rank, cookie->incarnation, PID_DIGITS, (unsigned)cookie->pid,
             job);
}

void cookie_set_pid(char *text, pid_t pid)
{
    char *at = text;
    for (int colons = 0; colons < 3 && *at; at++)
        colons += *at == ':';
    for (int i = PID_DIGITS; i-- > 0; pid /= 10)
        at[i] = (char)('0' + pid % 10);
}

bool cookie_parse(const char *value, struct cookie *ret_cookie)
{
    struct cookie found;
    unsigned pid;
    char colon;
    if (sscanf(value, "%16" SCNx64 ":%9" SCNu32 ":%19" SCNu64 ":%10u%c", &found.pool, &found.rank,
               &found.incarnation, &pid, &colon) != 5 ||
        colon != ':' || found.pool == 0 || pid == 0 || pid > INT32_MAX)
        return false;
    found.pid = (pid_t)pid;
    *ret_cookie = found;
    return true;
}

bool cookie_find(const char *environment, size_t bytes, struct cookie *ret_cookie)
{
    static const char name[] = COOKIE_VARIABLE "=";
    size_t length;
    for (size_t at = 0; at < bytes; at += length + 1) {
        const char *text = environment + at;
        length = strnlen(text, bytes - at);
        if (length < bytes - at && strncmp(text, name, sizeof name - 1) == 0)
            return cookie_parse(text + sizeof name - 1, ret_cookie);
    }
    return false;
}
