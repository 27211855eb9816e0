/* The table of systems, and functions that start separate programs. */
#include "bench/compare/systems.h"

#include "bench/lib/folder.h"
#include "bench/lib/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int start_shm(struct crew *crew)
{
    return gradpool_start(crew, &(struct gradpool_way){.transport = "shm"});
}

static int start_shm_copy(struct crew *crew)
{
    return gradpool_start(crew, &(struct gradpool_way){.transport = "shm", .is_foreign = true});
}

static int start_tcp(struct crew *crew)
{
    return gradpool_start(crew, &(struct gradpool_way){.transport = "tcp"});
}

static int absent(const struct crew *crew, const char *why)
{
    fprintf(stderr, "gradpool-bench: %s %s is skipped: %s\n", crew->system->name,
            crew->system->transport, why);
    return -ENOENT;
}

static int spawn(struct crew *crew, char *const *argv)
{
    pid_t pid = process_spawn(argv, environ, NULL);
    if (pid < 0)
        return absent(crew, strerror(-pid));
    crew_note(crew, pid);
    return 0;
}

#define MPIRUN "mpirun.openmpi"

static bool is_in_path(const char *program)
{
    char path[PATH_MAX];
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)length, at, program);
        if (access(path, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* Starts the ranks with mpirun. The ranks bind themselves to cores, as the workers of other systems
 * do. No launcher for other hosts is needed. Each mpirun has its own session folder, because two
 * mpirun processes that start at the same time would use the same folder. */
static int start_mpi(struct crew *crew, const char *layer)
{
    char program[PATH_MAX], workers[16];
    if (process_find_beside("gradpool-bench-mpi", program, sizeof program) < 0)
        return absent(crew, "gradpool-bench-mpi was not built (libopenmpi-dev is missing)");
    if (!is_in_path(MPIRUN))
        return absent(crew, MPIRUN " is not installed (openmpi-bin)");
    if (folder_make(crew->folder, sizeof crew->folder) < 0)
        return -EACCES;
    snprintf(workers, sizeof workers, "%u", crew->workers);
    char *argv[] = {(char *)MPIRUN,
                    (char *)"--allow-run-as-root",
                    (char *)"--oversubscribe",
                    (char *)"--bind-to",
                    (char *)"none",
                    (char *)"--mca",
                    (char *)"plm",
                    (char *)"isolated",
                    (char *)"--mca",
                    (char *)"pml",
                    (char *)"ob1",
                    (char *)"--mca",
                    (char *)"btl",
                    (char *)layer,
                    (char *)"--mca",
                    (char *)"btl_tcp_if_include",
                    (char *)"lo",
                    (char *)"--mca",
                    (char *)"orte_tmpdir_base",
                    crew->folder,
                    (char *)"-n",
                    workers,
                    program,
                    crew->address,
                    NULL};
    return spawn(crew, argv);
}

static int start_mpi_shm(struct crew *crew) { return start_mpi(crew, "self,vader"); }
static int start_mpi_tcp(struct crew *crew) { return start_mpi(crew, "self,tcp"); }

static int start_gloo(struct crew *crew)
{
    char script[PATH_MAX], workers[16];
    if (process_find_beside("gloo_worker.py", script, sizeof script) < 0)
        return absent(crew, "gloo_worker.py is not in the folder of gradpool-bench");
    snprintf(workers, sizeof workers, "%u", crew->workers);
    char *argv[] = {(char *)BENCH_PYTHON, script, crew->address, workers, NULL};
    return spawn(crew, argv);
}

const struct system systems[] = {
    {.name = "gradpool",
     .transport = "shm",
     .uses_service = true,
     .takes_groups = true,
     .start = start_shm},
    {.name = "gradpool",
     .transport = "shm-copy",
     .uses_service = true,
     .takes_groups = true,
     .start = start_shm_copy},
    {.name = "gradpool",
     .transport = "tcp",
     .uses_service = true,
     .takes_groups = true,
     .start = start_tcp},
    {.name = "sockets",
     .transport = "tcp",
     .has_server_seat = true,
     .takes_groups = true,
     .start = sockets_start},
    {.name = "gloo", .transport = "tcp", .is_in_place = true, .start = start_gloo},
    {.name = "openmpi", .transport = "shm", .start = start_mpi_shm},
    {.name = "openmpi", .transport = "tcp", .start = start_mpi_tcp},
    {0},
};

const struct system *system_find(const char *name, const char *transport)
{
    const struct system *s = systems;
    while (strcmp(s->name, name) != 0 || strcmp(s->transport, transport) != 0)
        s++;
    return s;
}
