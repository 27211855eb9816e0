/* The environment variables of gradpool, by name: what reads them is elsewhere. */
#ifndef GRADPOOL_BASE_VARIABLES_H
#define GRADPOOL_BASE_VARIABLES_H

/* Logs a warning for each GRADPOOL_ variable that no program of gradpool reads, with the closest
 * one that some program does, and one for all that are set of those that options had once. */
void variables_check(void);

/* The closest of `names` (NULL at the end), if it is close; else NULL. */
const char *variables_closest(const char *word, const char *const *names);

#endif
