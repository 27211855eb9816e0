/* The cookie of a worker: a variable in the environment of its process. All processes that the
 * worker starts inherit the cookie. Cookies identify the processes of a pool, even after the pool
 * has ended. */
#ifndef GRADPOOL_POOL_COOKIE_H
#define GRADPOOL_POOL_COOKIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define COOKIE_VARIABLE "_GRADPOOL_WORKER"
#define COOKIE_BYTES 256 /* longest text, including the name of the variable */

struct cookie {
    uint64_t pool; /* random number of the pool's folder; 0: no cookie */
    uint64_t incarnation;
    uint32_t rank;
    pid_t pid; /* the worker's own process; its descendants have the same number in their cookie */
};

/* Writes "VARIABLE=POOL:RANK:INCARNATION:PID:JOB". */
void cookie_write(const struct cookie *cookie, const char *job, char text[COOKIE_BYTES]);
/* Replaces the process number in a text of cookie_write(). Async-signal-safe. */
void cookie_set_pid(char *text, pid_t pid);
/* Parses the value of the variable. Returns false for any other text. */
bool cookie_parse(const char *value, struct cookie *ret_cookie);
/* Finds the cookie in an environment of `bytes` bytes: texts that each end with a zero byte. */
bool cookie_find(const char *environment, size_t bytes, struct cookie *ret_cookie);

#endif
