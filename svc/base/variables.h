/* Names of gradpool's environment variables. Other code reads the variables. */
#ifndef GRADPOOL_BASE_VARIABLES_H
#define GRADPOOL_BASE_VARIABLES_H

/* Logs a warning for each GRADPOOL_ variable that no program of gradpool reads, with the most
 * similar known one. One more warning lists variables of removed options that are set. */
void variables_check(void);

/* Returns the most similar of `names` (which ends with NULL), or NULL if none is similar. */
const char *variables_closest(const char *word, const char *const *names);

#endif
