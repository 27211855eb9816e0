/* Replaces the process by python3, the first one in PATH, so that a venv's packages are found. */
#include "svc/cli/explore/explore.h"

#include "svc/cli/cli.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON "python3"
/* Path of this program, with which the module starts trials and services. No user sets it. */
#define PROGRAM_VARIABLE "_GRADPOOL_PROGRAM"

void python_add(struct python_words *words, const char *option, const char *value)
{
    if (!value)
        return;
    assert(words->count + 2 <= PYTHON_WORDS_MAX);
    if (option)
        words->words[words->count++] = (char *)option;
    words->words[words->count++] = (char *)value;
}

void python_add_joined(struct python_words *words, const char *option, const char *value)
{
    char *text;
    if (asprintf(&text, "%s=%s", option, value) > 0)
        python_add(words, NULL, text); /* exec() frees the text */
    else
        words->is_incomplete = true;
}

static size_t count_rest(char **rest)
{
    size_t count = 0;
    while (rest && rest[count])
        count++;
    return count;
}

static int name_program(void)
{
    char path[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
    if (bytes < 0)
        return -errno;
    path[bytes] = '\0';
    return setenv(PROGRAM_VARIABLE, path, 1) < 0 ? -errno : 0;
}

/* Without the package, Python would print a traceback. */
static const char start[] =
    "import runpy, sys\n"
    "try:\n"
    "    import gradpool.errors\n"
    "except (ImportError, OSError) as error:\n"
    "    sys.exit(f'gradpool {sys.argv[1]}: {sys.executable} cannot import gradpool: {error}; '\n"
    "             'install the Python package, or set PYTHONPATH to its folder')\n"
    "runpy.run_module('gradpool.explore', run_name='__main__', alter_sys=True)\n";

int python_run(const char *command, const struct python_words *words, char **rest)
{
    static const char *const head[] = {PYTHON, "-c", start};
    const size_t head_count = sizeof head / sizeof *head;
    size_t rest_count = count_rest(rest);
    char **arguments = calloc(head_count + words->count + rest_count + 1, sizeof *arguments);
    int error = arguments && !words->is_incomplete ? name_program() : -ENOMEM;
    if (error == 0) {
        memcpy(arguments, head, sizeof head);
        memcpy(arguments + head_count, words->words, words->count * sizeof *arguments);
        if (rest_count)
            memcpy(arguments + head_count + words->count, rest, rest_count * sizeof *arguments);
        execvp(PYTHON, arguments);
        error = -errno;
    }
    fprintf(stderr,
            "%s: " PYTHON " cannot be executed: %s; install " PYTHON ", and put it in PATH\n",
            command, strerror(-error));
    free(arguments);
    return CLI_FAILED;
}
