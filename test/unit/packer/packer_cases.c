/* Prints small random fleets that policy `shared` has filled. test_packer_exact.py reads this
 * output, and searches for the smallest sufficient number of lanes. The output has one line for
 * each job (period, limit) and one line for each task (job, lane time, bytes, lane). Usage:
 * packer_cases SEED COUNT. */
#include "test/unit/packer/packer_fleet.h"

#define LANES 16
#define TASKS_MIN 6
#define TASKS_MAX 9

static uint64_t draw_share_ppm(uint64_t *seed)
{
    switch (fleet_draw(seed, 3)) {
    case 0: return 5000 + fleet_draw(seed, 50000);
    case 1: return 50000 + fleet_draw(seed, 150000);
    default: return 200000 + fleet_draw(seed, 300000);
    }
}

static void print_job(const struct fleet *f, const struct packer_plan *plan)
{
    printf("job %" PRIu64 " %" PRIu64 " %" PRIu32 "\n", f->next_job, f->timing.period_ns,
           f->timing.loss_limit_ppm);
    for (size_t i = 0; i < f->tensors_count; i++)
        printf("task %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 "\n", f->next_job,
               f->tensors[i].lane_ns, f->tensors[i].elements * 4, fleet_lane_of(plan, i));
}

/* Places one job with one to three tasks. Returns their number. */
static size_t place_job(struct fleet *f, size_t tasks_left, uint64_t *seed)
{
    size_t tasks = 1 + fleet_draw(seed, tasks_left < 3 ? tasks_left : 3);
    uint64_t period_ns = (20 + fleet_draw(seed, 500)) * MS;
    struct packer_plan plan;

    f->timing = (struct packer_timing){
        .period_ns = period_ns, .loss_limit_ppm = 30000 + (uint32_t)fleet_draw(seed, 8) * 10000};
    for (size_t i = 0; i < tasks; i++)
        fleet_tensor(f, period_ns * draw_share_ppm(seed) / 1000000)->elements =
            1 + fleet_draw(seed, 1000);
    plan = fleet_plan(f, "shared");
    print_job(f, &plan);
    fleet_commit(f, &plan);
    return tasks;
}

static void print_case(uint64_t *seed)
{
    uint64_t memory_bytes = fleet_draw(seed, 2) ? UINT64_MAX : 8000 + fleet_draw(seed, 8000);
    size_t tasks_left = TASKS_MIN + fleet_draw(seed, TASKS_MAX - TASKS_MIN + 1);
    struct fleet *f = fleet_new(LANES);

    for (size_t i = 0; i < LANES; i++)
        f->lanes[i].memory_bytes = memory_bytes;
    printf("case %" PRIu64 "\n", memory_bytes);
    while (tasks_left > 0)
        tasks_left -= place_job(f, tasks_left, seed);
    free(f);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 2 ? strtoull(argv[1], NULL, 10) : 0;
    long count = argc > 2 ? strtol(argv[2], NULL, 10) : 0;

    for (long i = 0; i < count; i++)
        print_case(&seed);
    return 0;
}
