/* Reads rank, size and job name from the variables of launchers. */
#include "client/lib/session/client.h"
#include "client/lib/session/process.h"
#include "svc/base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Launchers in the order of their priority: the first launcher with a set variable is used. If its
 * rank and size count machines, local_rank and local_size count the processes on a machine. */
static const struct launcher {
    const char *rank, *size, *local_rank, *local_size;
} launchers[] = {
    {.rank = "GRADPOOL_RANK", .size = "GRADPOOL_SIZE"},
    {.rank = "RANK", .size = "WORLD_SIZE"},                           /* torchrun */
    {.rank = "HOROVOD_RANK", .size = "HOROVOD_SIZE"},                 /* horovodrun */
    {.rank = "OMPI_COMM_WORLD_RANK", .size = "OMPI_COMM_WORLD_SIZE"}, /* Open MPI */
    {.rank = "MV2_COMM_WORLD_RANK", .size = "MV2_COMM_WORLD_SIZE"},   /* MVAPICH2 */
    {.rank = "JSM_NAMESPACE_RANK", .size = "JSM_NAMESPACE_SIZE"},     /* jsrun */
    {.rank = "FLUX_TASK_RANK", .size = "FLUX_JOB_SIZE"},              /* Flux */
    {.rank = "PMI_RANK", .size = "PMI_SIZE"},                         /* MPICH, Intel MPI */
    {"DMLC_WORKER_ID", "DMLC_NUM_WORKER", "BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE"}, /* bpslaunch */
};

#define MOST_NAME "GRADPOOL_WORKERS_MAX"

/* More variables with a size. A launcher sets its variable only for processes that it has
 * started. */
static const char *const more_sizes[] = {"SLURM_STEP_NUM_TASKS", "BYTEPS_LOCAL_SIZE",
                                         "HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "MPI_LOCALNRANKS"};

static int parse(const char *name, const char *partner, uint32_t least, uint32_t most,
                 uint32_t *ret_value)
{
    const char *text = getenv(name);
    uint64_t value;
    if (!text)
        return client_error(-EINVAL, "%s is not set, but %s is set; set both or neither", name,
                            partner);
    if (text_parse_u64(text, least, most, &value) < 0)
        return client_error(-EINVAL, "%s is '%s', expected a number from %u to %u", name, text,
                            least, most);
    *ret_value = (uint32_t)value;
    return 0;
}

/* Reads GRADPOOL_WORKERS_MAX, which a launcher sets beside GRADPOOL_RANK and GRADPOOL_SIZE if the
 * job may grow. The rank of a late worker is at least GRADPOOL_SIZE. */
static int read_most(const char *size_name, uint32_t size, uint32_t *ret_most)
{
    bool is_set = strcmp(size_name, launchers[0].size) == 0 && getenv(MOST_NAME);
    *ret_most = 0;
    return is_set ? parse(MOST_NAME, size_name, size, CLIENT_WORKERS_MAX, ret_most) : 0;
}

static int read_pair(const char *rank_name, const char *size_name, gp_job_spec *ret_spec)
{
    uint32_t rank = 0, size = 0, most = 0;
    int error = parse(size_name, rank_name, 1, CLIENT_WORKERS_MAX, &size)
                    ?: parse(rank_name, size_name, 0, UINT32_MAX, &rank)
                    ?: read_most(size_name, size, &most);
    if (error < 0)
        return error;
    if (most > 0 && rank >= most)
        return client_error(-EINVAL,
                            "%s is %u, but %s is %u; expected a rank below the largest number of "
                            "workers",
                            rank_name, rank, MOST_NAME, most);
    if (most == 0 && rank >= size)
        return client_error(
            -EINVAL,
            "%s is %u, but %s is %u; the first rank is 0, so the last one is the size minus 1",
            rank_name, rank, size_name, size);
    *ret_spec = (gp_job_spec){
        .name = getenv("GRADPOOL_JOB"), .rank = rank, .workers = size, .workers_max = most};
    return 0;
}

/* Computes rank and size if all machines have the same number of processes. */
static int read_machines(const struct launcher *launcher, gp_job_spec *ret_spec)
{
    gp_job_spec machine, process;
    int error = read_pair(launcher->rank, launcher->size, &machine)
                    ?: read_pair(launcher->local_rank, launcher->local_size, &process);
    if (error < 0)
        return error;
    if (machine.workers * process.workers > CLIENT_WORKERS_MAX)
        return client_error(
            -EINVAL,
            "%s is %u and %s is %u: their product is more than %u workers; start fewer processes",
            launcher->size, machine.workers, launcher->local_size, process.workers,
            CLIENT_WORKERS_MAX);
    machine.rank = machine.rank * process.workers + process.rank;
    machine.workers *= process.workers;
    *ret_spec = machine;
    return 0;
}

static bool is_set(const char *name) { return name && getenv(name); }

static int read_launcher(const struct launcher *launcher, gp_job_spec *ret_spec)
{
    if (is_set(launcher->local_rank) || is_set(launcher->local_size))
        return read_machines(launcher, ret_spec);
    return read_pair(launcher->rank, launcher->size, ret_spec);
}

/* Returns whether this process is alone in a Slurm allocation for several tasks. Slurm sets the
 * number of requested tasks also where only one task was started: in a batch script (as task 0),
 * and in the shell of an allocation (perhaps as a step of one task). */
static bool is_alone_of_many(void)
{
    const char *asked = getenv("SLURM_NTASKS"), *step = getenv("SLURM_STEP_NUM_TASKS");
    return asked && strcmp(asked, "1") != 0 && (!step || strcmp(step, "1") == 0);
}

static int read_slurm(gp_job_spec *ret_spec)
{
    if (is_alone_of_many())
        return client_error(-EINVAL,
                            "this allocation of Slurm is for %s tasks (SLURM_NTASKS), but srun has "
                            "not started this process as one of them: start it with srun, or set "
                            "GRADPOOL_RANK and GRADPOOL_SIZE",
                            getenv("SLURM_NTASKS"));
    if (getenv("SLURM_STEP_NUM_TASKS"))
        return read_pair("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ret_spec);
    return client_error(-ENOENT, "neither rank nor size in the environment: looked for "
                                 "GRADPOOL_RANK/GRADPOOL_SIZE, RANK/WORLD_SIZE, "
                                 "HOROVOD_RANK/_SIZE, OMPI_COMM_WORLD_RANK/_SIZE, "
                                 "MV2_COMM_WORLD_RANK/_SIZE, JSM_NAMESPACE_RANK/_SIZE, "
                                 "FLUX_TASK_RANK/FLUX_JOB_SIZE, PMI_RANK/PMI_SIZE, "
                                 "DMLC_WORKER_ID/DMLC_NUM_WORKER, "
                                 "SLURM_PROCID/SLURM_STEP_NUM_TASKS");
}

static const char *size_of_many(void)
{
    uint64_t size;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (is_set(launchers[i].size) &&
            text_parse_u64(getenv(launchers[i].size), 2, UINT32_MAX, &size) == 0)
            return launchers[i].size;
    for (size_t i = 0; i < sizeof more_sizes / sizeof *more_sizes; i++)
        if (is_set(more_sizes[i]) &&
            text_parse_u64(getenv(more_sizes[i]), 2, UINT32_MAX, &size) == 0)
            return more_sizes[i];
    return NULL;
}

/* Returns an error if a variable shows that the launcher has started several processes. Otherwise
 * each process would train alone, without any message. `size_name`: the variable with the value 1;
 * NULL: no launcher has set a rank. */
static int refuse_many(const char *size_name)
{
    const char *many = size_of_many();
    if (!many)
        return 0;
    return client_error(-EINVAL,
                        "%s%s, so this process is alone, but %s is %s, so several processes run: "
                        "unset the wrong variable, or set GRADPOOL_RANK and GRADPOOL_SIZE",
                        size_name ? size_name : "no variable gives this process a rank",
                        size_name ? " is 1" : "", many, getenv(many));
}

static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (is_set(launchers[i].rank) || is_set(launchers[i].size))
            return &launchers[i];
    return NULL;
}

int gp_job_spec_from_environment(gp_job_spec *ret_spec)
{
    if (!ret_spec)
        return client_error(-EINVAL,
                            "gp_job_spec_from_environment: ret_spec is NULL; pass a pointer");
    const struct launcher *launcher = find_launcher();
    gp_job_spec spec = {0};
    int error = launcher ? read_launcher(launcher, &spec) : read_slurm(&spec);
    bool is_alone = error == -ENOENT || (error == 0 && spec.workers == 1);
    if (is_alone && launcher != &launchers[0]) {
        const char *size_name = launcher ? launcher->size : "SLURM_STEP_NUM_TASKS";
        int refused = refuse_many(error == 0 ? size_name : NULL);
        error = refused < 0 ? refused : error;
    }
    if (error == 0)
        *ret_spec = spec;
    return error;
}
