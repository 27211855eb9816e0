/* Runs the parts of `tables` and of `stages`. Owns the measured service. */
#include "bench/lib/host.h"
#include "bench/tables/tables.h"

#include <stdio.h>

static int measure_start(struct service *service)
{
    char core[16];
    snprintf(core, sizeof core, "%d", process_core(0));
    return service_start_as(service, &(struct service_setting){.cores = core,
                                                               .lanes_per_core = "1",
                                                               .scale = "off",
                                                               .job_memory_max = "8G",
                                                               .lane_memory_max = "8G"});
}

int tables_measure(const char *bench, const struct parts_options *options,
                   int (*const *parts)(struct tables *t), size_t count)
{
    static struct tables t;
    t = (struct tables){.bench = bench,
                        .is_quick = options->is_quick,
                        .is_json = options->is_json,
                        .seed = options->seed};
    int error = measure_start(&t.service);
    for (size_t i = 0; error == 0 && i < count; i++)
        if (parts_have(options, i))
            error = parts[i](&t);
    service_stop(&t.service);
    return error < 0 || t.wrong ? 1 : 0;
}
