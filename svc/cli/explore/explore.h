/* Options of `explore` and `trials`. The Python module gradpool.explore carries out both. */
#ifndef GRADPOOL_CLI_EXPLORE_EXPLORE_H
#define GRADPOOL_CLI_EXPLORE_EXPLORE_H

#include "svc/cli/options/knobs.h"

#include <stddef.h>

extern const struct knob explore_knobs[], trials_knobs[];

#define PYTHON_WORDS_MAX 64

/* Arguments for the module. The texts are not copied, so they must outlive the struct. */
struct python_words {
    char *words[PYTHON_WORDS_MAX];
    size_t count;
    bool is_incomplete; /* memory was missing for an argument, so the list lacks it */
};

/* Adds the name of an option and its value, if there is a value. */
void python_add(struct python_words *words, const char *option, const char *value);
/* Adds OPTION=VALUE, for a value that may begin with a dash. */
void python_add_joined(struct python_words *words, const char *option, const char *value);
/* Replaces this process by `python3 -m gradpool.explore` with the arguments, followed by `rest`,
 * which ends with NULL; NULL: no more arguments. Returns CLI_FAILED, with an error on standard
 * error, if this is not possible. */
int python_run(const char *command, const struct python_words *words, char **rest);

#endif
