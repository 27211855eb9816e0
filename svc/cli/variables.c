/* GRADPOOL_* variables that nothing reads are most often typing errors: they are named, with the
 * one that was meant. */
#include "svc/base/log.h"
#include "svc/cli/cli.h"
#include "svc/cli/knobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "GRADPOOL_"
#define WORD_MAX 48
#define VARIABLES_MAX 96

/* Read by the client library, the Python package, the demo and the log. */
static const char *const other_variables[] = {
    "GRADPOOL_CONNECT_TIMEOUT_MS",
    "GRADPOOL_EAGER_BYTES",
    "GRADPOOL_ENDPOINT",
    "GRADPOOL_INTERFACE",
    "GRADPOOL_KEY",
    "GRADPOOL_KEY_FILE",
    "GRADPOOL_JOB",
    "GRADPOOL_LIBRARY",
    "GRADPOOL_LOG_LEVEL",
    "GRADPOOL_RANK",
    "GRADPOOL_SIZE",
    "GRADPOOL_TIMEOUT_MS",
    "GRADPOOL_TRANSPORT",
};

/* Edits (insert, delete, replace) from one word to the other. */
static size_t distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1], length = strlen(b);
    if (strlen(a) > WORD_MAX || length > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t above = row[j];
            size_t least = diagonal + (a[i - 1] != b[j - 1]);
            least = above + 1 < least ? above + 1 : least;
            row[j] = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            diagonal = above;
        }
    }
    return row[length];
}

const char *cli_closest(const char *word, const char *const *names)
{
    const char *closest = NULL;
    size_t least = 1 + strlen(word) / 3;
    for (; *names; names++) {
        size_t edits = distance(word, *names);
        if (edits <= least && (!closest || edits < least)) {
            closest = *names;
            least = edits;
        }
    }
    return closest;
}

static size_t known_variables(const char **names, char texts[][64])
{
    const struct knob *const tables[] = {serve_knobs, aggregator_knobs, operator_knobs,
                                         tenant_knobs};
    size_t count = 0;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const struct knob *knob = tables[t]; knob->name; knob++, count++)
            names[count] = knobs_variable(knob->name, texts[count], sizeof texts[count]);
    }
    for (size_t i = 0; i < sizeof other_variables / sizeof *other_variables; i++)
        names[count++] = other_variables[i];
    names[count] = NULL;
    return count;
}

static void check(const char *setting, const char *const *known)
{
    char name[64] = "";
    size_t length = strcspn(setting, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, setting);
    for (const char *const *k = known; *k; k++)
        if (strcmp(*k, name) == 0)
            return;
    const char *closest = cli_closest(name, known);
    if (closest)
        log_warn("nothing reads the environment variable %s; did you mean %s?", name, closest);
    else
        log_warn("nothing reads the environment variable %s", name);
}

void cli_environment_check(void)
{
    static char texts[VARIABLES_MAX][64];
    const char *known[VARIABLES_MAX + 1];
    known_variables(known, texts);
    for (char **setting = environ; *setting; setting++)
        if (strncmp(*setting, PREFIX, sizeof PREFIX - 1) == 0)
            check(*setting, known);
}
