/* Names of the environment variables of gradpool. The code that reads the variables is
 * elsewhere. */
#ifndef GRADPOOL_BASE_VARIABLES_H
#define GRADPOOL_BASE_VARIABLES_H

/* Logs a warning for each GRADPOOL_ variable that no program of gradpool reads, with the closest
 * variable that some program reads. One more warning lists the set variables that belonged to
 * removed options. */
void variables_check(void);

/* Returns the closest of `names` (NULL at the end); NULL if none is close. */
const char *variables_closest(const char *word, const char *const *names);

#endif
