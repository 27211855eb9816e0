/* The options --engine and --slurm of `run` and `explore`. */
#include "svc/cli/run/run.h"

#include <errno.h>
#include <string.h>

int engine_set(struct run_engine *engine, const char *value, struct err *err)
{
    if (strcmp(value, "local") != 0 && strcmp(value, "slurm") != 0)
        return err_set(err, -EINVAL, "'%.64s': expected local or slurm", value);
    engine->name = value;
    return 0;
}

int engine_add_slurm(struct run_engine *engine, const char *value, struct err *err)
{
    size_t count = 0;
    while (engine->slurm[count])
        count++;
    if (value[0] != '-')
        return err_set(err, -EINVAL, "'%.64s': expected an option such as --cpus-per-task=4",
                       value);
    if (count == RUN_SLURM_MAX)
        return err_set(err, -E2BIG, "'%.64s': at most %d options for Slurm can be given", value,
                       RUN_SLURM_MAX);
    engine->slurm[count] = (char *)value;
    return 0;
}

bool engine_is_slurm(const struct run_engine *engine)
{
    return engine->name && strcmp(engine->name, "slurm") == 0;
}

const char *engine_find_mistake(const struct run_engine *engine, const char *preload)
{
    if (engine->slurm[0] && !engine_is_slurm(engine))
        return "--slurm is for jobs of Slurm: give --engine slurm, too";
    if (preload && engine_is_slurm(engine))
        return "--preload forks workers on this host: leave out --preload, or --engine slurm";
    return NULL;
}
