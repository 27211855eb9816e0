/* Names of gradpool's environment variables. Other code reads the variables. */
#ifndef GRADPOOL_BASE_VARIABLES_H
#define GRADPOOL_BASE_VARIABLES_H

/* Logs a warning for each GRADPOOL_ variable that no program of gradpool reads, with the most
 * similar known variable. One more warning lists the variables of removed options that are set. */
void variables_check(void);

/* Returns the name that is most similar to `word`, or NULL if no name is similar. `names` ends with
 * NULL. */
const char *variables_closest(const char *word, const char *const *names);

#endif
