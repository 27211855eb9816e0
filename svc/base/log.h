/* Log lines of the programs: logfmt on standard error, one write a line.
 * Libraries return codes and text; only the place that decides logs, once. */
#ifndef GRADPOOL_BASE_LOG_H
#define GRADPOOL_BASE_LOG_H

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_TRACE
};

/* `who` stands in every line: "coordinator", "aggregator 2", "client". Level from
 * GRADPOOL_LOG_LEVEL (default info; for `who` "client": warn). -EINVAL: unknown level name, set
 * to the default. */
int log_init(const char *who);
void log_set_level(enum log_level level);
/* Where lines go besides; NULL: nowhere. For tests and the client's callback. */
void log_set_hook(void (*hook)(enum log_level level, const char *line));

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
