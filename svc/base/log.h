/* Log lines of the programs: logfmt on standard error, one write() a line. Libraries return codes
 * and texts and do not log. The code that handles an error logs it once. */
#ifndef GRADPOOL_BASE_LOG_H
#define GRADPOOL_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_TRACE
};

/* Starts the log. `who`: name of the program in each line, such as "coordinator", "aggregator 2" or
 * "client". GRADPOOL_LOG_LEVEL sets the level (default: info; for the client warn). Returns 0, or
 * -EINVAL for an unknown level; a warning is then logged, and the default applies. */
int log_init(const char *who);
void log_set_level(enum log_level level);
/* Returns whether lines of this level are written. A caller that needs much time to create a line
 * checks this first. */
bool log_is_written(enum log_level level);
/* Sets the function that receives the lines; NULL: standard error. Used by tests and by the
 * client's callback. */
void log_set_hook(void (*hook)(enum log_level level, const char *line));

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Rate limit for one kind of line. Peers could otherwise cause any number of such lines. At most
 * one line a second is written, with the number of suppressed lines. Any thread may use the rate
 * limit. */
struct log_rate {
    _Atomic uint64_t next_ns;
    _Atomic uint32_t left_out;
};
void log_write_rarely(struct log_rate *rate, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define log_warn_rarely(...)                                   \
    do {                                                       \
        static struct log_rate rate_;                          \
        log_write_rarely(&rate_, LOG_LEVEL_WARN, __VA_ARGS__); \
    } while (0)

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
