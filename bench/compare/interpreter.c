/* Starts workers in Python. The workers inherit environment variables, which are set in this
 * process. */
#include "bench/compare/interpreter.h"

#include "bench/lib/host.h"

#include <errno.h>
#include <stdlib.h>

extern char **environ;

void interpreter_prepare(const struct service *service)
{
    char library[PATH_MAX], path[2 * PATH_MAX];
    const char *others = getenv("PYTHONPATH");
    snprintf(path, sizeof path, "%s%s%s", BENCH_PACKAGE, others ? ":" : "", others ? others : "");
    setenv("GRADPOOL_ENDPOINT", service->endpoint, 1);
    setenv("PYTHONPATH", path, 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1); /* no byte code is written into a source tree */
    if (process_find_beside("../client/libgradpool.so", library, sizeof library) == 0)
        setenv("GRADPOOL_LIBRARY", library, 1);
}

int interpreter_start(struct crew *crew, const char *script)
{
    char path[PATH_MAX], workers[16];
    if (process_find_beside(script, path, sizeof path) < 0) {
        fprintf(stderr, "gradpool-bench: %s is not in the folder of gradpool-bench\n", script);
        return -ENOENT;
    }
    snprintf(workers, sizeof workers, "%u", crew->workers);
    char *argv[] = {(char *)BENCH_PYTHON,       path,      crew->address, workers,
                    (char *)crew->system->name, crew->job, NULL};
    pid_t pid = process_spawn(argv, environ, NULL);
    if (pid < 0)
        return pid;
    crew_note(crew, pid);
    return 0;
}
