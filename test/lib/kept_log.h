/* Stores the lines of the log, so that a test can search for words in them. If GRADPOOL_LOG_LEVEL
 * is set, lines also go to standard error. Any thread may log. */
#ifndef TEST_LIB_KEPT_LOG_H
#define TEST_LIB_KEPT_LOG_H

#include <stddef.h>

/* From now on stores log lines of level debug and above. Drops the lines of an earlier test. */
void kept_log_begin(void);
/* Fails the test unless a line since kept_log_begin() contains these words. */
void kept_log_expect(const char *words);
/* Returns how often the lines since kept_log_begin() contain these words. */
size_t kept_log_count(const char *words);

#endif
