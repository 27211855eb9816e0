/* Stores the lines of the log, so that a test can check their words. If GRADPOOL_LOG_LEVEL is
 * set, lines also go to standard error. Any thread may log. */
#ifndef TEST_LIB_KEPT_LOG_H
#define TEST_LIB_KEPT_LOG_H

#include <stddef.h>

/* Begins to keep lines of level debug and above, and drops those of an earlier test. */
void kept_log_begin(void);
/* Fails the test unless a line since kept_log_begin() has these words. */
void kept_log_expect(const char *words);
/* Returns how often the lines since kept_log_begin() have these words. */
size_t kept_log_count(const char *words);

#endif
