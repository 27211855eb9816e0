/* Rank, size and job name from the variables that launchers set. Owns nothing; only reads. */
#include "client/client.h"
#include "svc/base/text.h"

#include <errno.h>
#include <stdlib.h>

static const struct {
    const char *rank, *size;
} launchers[] = {
    {"GRADPOOL_RANK", "GRADPOOL_SIZE"},
    {"RANK", "WORLD_SIZE"},                           /* torch */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* Open MPI */
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
};

static int parse(const char *name, uint32_t least, uint32_t most, uint32_t *ret_value)
{
    const char *text = getenv(name);
    uint64_t value;
    if (!text)
        return client_error(-EINVAL, "%s is not set, but its partner is", name);
    if (text_parse_u64(text, least, most, &value) < 0)
        return client_error(-EINVAL, "%s is '%s', expected a number from %u to %u", name, text,
                            least, most);
    *ret_value = (uint32_t)value;
    return 0;
}

static int read_pair(const char *rank_name, const char *size_name, gp_job_spec *ret_spec)
{
    uint32_t rank = 0, size = 0;
    int r = parse(size_name, 1, CLIENT_WORKERS_MAX, &size);
    if (r == 0)
        r = parse(rank_name, 0, UINT32_MAX, &rank);
    if (r < 0)
        return r;
    if (rank >= size)
        return client_error(-EINVAL, "%s is %u, but %s is %u: ranks count from 0", rank_name, rank,
                            size_name, size);
    *ret_spec = (gp_job_spec){.name = getenv("GRADPOOL_JOB"), .rank = rank, .workers = size};
    return 0;
}

int gp_job_spec_from_environment(gp_job_spec *ret_spec)
{
    if (!ret_spec)
        return client_error(-EINVAL, "gp_job_spec_from_environment: no place for the result");
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (getenv(launchers[i].rank) || getenv(launchers[i].size))
            return read_pair(launchers[i].rank, launchers[i].size, ret_spec);
    }
    return client_error(-ENOENT, "neither rank nor size in the environment: looked for "
                                 "GRADPOOL_RANK/GRADPOOL_SIZE, RANK/WORLD_SIZE, "
                                 "OMPI_COMM_WORLD_RANK/_SIZE, PMI_RANK/PMI_SIZE, "
                                 "SLURM_PROCID/SLURM_NTASKS");
}
