/* Owns a service and a crew of workers during a measurement. Every figure must come from the CPU
 * clocks of the service's processes (B4). */
#include "bench/lib/calibrate.h"

#include "bench/compare/systems.h"
#include "bench/lib/host.h"

#include <errno.h>
#include <stdlib.h>

#define WORKERS 4
#define TASK_BYTES ((uint64_t)4 << 20)
#define WARM_ROUNDS 8
#define PASSES 9
#define ROUNDS 30
#define GIB ((double)(1 << 30))

static int run_rounds(struct crew *crew, uint32_t rounds, uint64_t *ret_server_cpu_ns)
{
    struct segment s = {.rounds = rounds};
    int r;

    s.round_ns = calloc((size_t)rounds * WORKERS, sizeof *s.round_ns);
    r = s.round_ns ? crew_run(crew, &s) : -ENOMEM;
    free(s.round_ns);
    if (r == 0 && s.wrong) {
        fprintf(stderr, "gradpool-bench: %llu elements are wrong\n", (unsigned long long)s.wrong);
        r = -EIO;
    }
    if (r == 0)
        *ret_server_cpu_ns = s.server_cpu_ns;
    return r;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Measures several times and returns the median, because other load of the machine disturbs some
 * measurements. */
static int measure(struct crew *crew, double *ret_gib_per_s)
{
    uint64_t cpu_ns[PASSES] = {0};
    int r = crew_resize(crew, TASK_BYTES, 1);

    if (r == 0)
        r = run_rounds(crew, WARM_ROUNDS, &cpu_ns[0]);
    for (int pass = 0; pass < PASSES && r == 0; pass++)
        r = run_rounds(crew, ROUNDS, &cpu_ns[pass]);
    if (r < 0)
        return r;
    qsort(cpu_ns, PASSES, sizeof *cpu_ns, compare_times);
    *ret_gib_per_s = ROUNDS * WORKERS * TASK_BYTES / GIB / ((double)cpu_ns[PASSES / 2] / 1e9);
    return 0;
}

int calibrate(double *ret_gib_per_s)
{
    struct service service = {0};
    struct crew crew = {0};
    int r;

    process_core(0);
    r = service_start(&service);
    if (r == 0)
        r = crew_start(&crew, system_find("gradpool", "tcp"), &service, WORKERS);
    if (r == 0)
        r = crew_await(&crew);
    if (r == 0)
        r = measure(&crew, ret_gib_per_s);
    crew_end(&crew);
    service_stop(&service);
    return r;
}
