/* Rank, size and job name from the variables that launchers set. Owns nothing; only reads. */
#include "client/client.h"
#include "svc/base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *rank, *size;
} launchers[] = {
    {"GRADPOOL_RANK", "GRADPOOL_SIZE"},
    {"RANK", "WORLD_SIZE"},                           /* torch */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* Open MPI */
    {"PMI_RANK", "PMI_SIZE"},
};

static int parse(const char *name, const char *partner, uint32_t least, uint32_t most,
                 uint32_t *ret_value)
{
    const char *text = getenv(name);
    uint64_t value;
    if (!text)
        return client_error(-EINVAL, "%s is not set, but %s is: set both or neither", name,
                            partner);
    if (text_parse_u64(text, least, most, &value) < 0)
        return client_error(-EINVAL, "%s is '%s', expected a number from %u to %u", name, text,
                            least, most);
    *ret_value = (uint32_t)value;
    return 0;
}

static int read_pair(const char *rank_name, const char *size_name, gp_job_spec *ret_spec)
{
    uint32_t rank = 0, size = 0;
    int r = parse(size_name, rank_name, 1, CLIENT_WORKERS_MAX, &size);
    if (r == 0)
        r = parse(rank_name, size_name, 0, UINT32_MAX, &rank);
    if (r < 0)
        return r;
    if (rank >= size)
        return client_error(-EINVAL, "%s is %u, but %s is %u: ranks count from 0", rank_name, rank,
                            size_name, size);
    *ret_spec = (gp_job_spec){.name = getenv("GRADPOOL_JOB"), .rank = rank, .workers = size};
    return 0;
}

/* Slurm tells how many tasks were asked for also where it has started one: a batch script, which is
 * told that it is task 0, and the shell of an allocation, which may be a step of one task. */
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
                                 "OMPI_COMM_WORLD_RANK/_SIZE, PMI_RANK/PMI_SIZE, "
                                 "SLURM_PROCID/SLURM_STEP_NUM_TASKS");
}

int gp_job_spec_from_environment(gp_job_spec *ret_spec)
{
    if (!ret_spec)
        return client_error(-EINVAL, "gp_job_spec_from_environment: no place for the result");
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (getenv(launchers[i].rank) || getenv(launchers[i].size))
            return read_pair(launchers[i].rank, launchers[i].size, ret_spec);
    }
    return read_slurm(ret_spec);
}
