/* Tests packing on simulated machines. The test reads their topologies in the same way as the
 * service. A lane is a core, and its node is a NUMA node with memory. */
#include "svc/host/cores.h"
#include "test/unit/packer/packer_fleet.h"

#define TWO_SOCKETS "pack:2 numa:1 core:32 pu:2"

/* Returns a fleet in which lane i is the i-th allowed core, in the order of node and index. */
static struct fleet *fleet_of_machine(const char *synthetic, const char *list, uint64_t node_bytes,
                                      struct cores **ret_cores)
{
    struct err err = {0};
    struct fleet *f;

    setenv("HWLOC_SYNTHETIC", synthetic, 1);
    if (cores_create(list, ret_cores, &err) < 0)
        fail_msg("%s", err.text);
    unsetenv("HWLOC_SYNTHETIC");
    f = fleet_new(cores_count(*ret_cores));
    for (size_t i = 0; i < f->lanes_count; i++) {
        struct core core = cores_at(*ret_cores, i);

        f->lanes[i].numa = core.numa;
        f->lanes[i].node = (uint32_t)core.numa;
        if (f->nodes_count <= f->lanes[i].node)
            f->nodes_count = f->lanes[i].node + 1;
        f->nodes[f->lanes[i].node] =
            (struct packer_node){.memory_bytes = node_bytes, .nic_bytes_per_s = UINT64_MAX};
    }
    return f;
}

/* Places jobs of one task until a job is refused. Returns the number of placed jobs. */
static size_t fill(struct fleet *f, uint64_t lane_ns)
{
    for (size_t jobs = 0;; jobs++) {
        struct packer_plan plan;

        f->timing = (struct packer_timing){.period_ns = 100 * MS};
        fleet_tensor(f, lane_ns);
        if (fleet_try(f, "shared", &plan) < 0)
            return jobs;
        fleet_commit(f, &plan);
    }
}

static void a_machine_with_smt_is_filled_core_by_core(void **state)
{
    struct cores *cores;
    struct fleet *f = fleet_of_machine(TWO_SOCKETS, NULL, UINT64_MAX, &cores);

    assert_int_equal(f->lanes_count, 64);
    assert_int_equal(fill(f, 10 * MS),
                     /* four jobs that each use a tenth of a lane lose 3.1 %, plus the margin */
                     64 * 4);
    assert_int_equal(fleet_lanes_open(f), 64);
    assert_non_null(strstr(f->reason, "lanes over a loss limit: 64"));
    free(f);
    cores_destroy(cores);
}

static void few_jobs_use_few_cores_of_many(void **state)
{
    struct cores *cores;
    struct fleet *f = fleet_of_machine(TWO_SOCKETS, NULL, UINT64_MAX, &cores);

    for (size_t j = 0; j < 16; j++) {
        struct packer_plan plan;

        f->timing = (struct packer_timing){.period_ns = 100 * MS};
        for (size_t t = 0; t < 10; t++)
            fleet_tensor(f, MS);
        plan = fleet_plan(f, "shared");
        /* the job uses the rest of one lane, and then the next lane */
        assert_true(plan.shares_count <= 2);
        fleet_commit(f, &plan);
    }
    assert_int_equal(fleet_lanes_open(f), 4);
    free(f);
    cores_destroy(cores);
}

static void jobs_avoid_a_node_without_memory(void **state)
{
    struct cores *cores;
    struct fleet *f = fleet_of_machine(TWO_SOCKETS, NULL, UINT64_MAX, &cores);

    f->nodes[0].memory_bytes = 5 * 4000 + 3999;
    fill(f, 10 * MS);
    for (size_t i = 0; i < f->lanes_count; i++)
        assert_int_equal(f->lanes[i].residents_count, i < 1 || i >= 32 ? 4 : i < 2);
    assert_int_equal(f->nodes[0].memory_bytes, 3999);
    assert_non_null(strstr(f->reason, "lanes short of memory: 31 (most free: 3999 bytes)"));
    free(f);
    cores_destroy(cores);
}

static void holes_of_the_cpuset_are_no_lanes(void **state)
{
    struct cores *cores;
    struct fleet *f = fleet_of_machine(TWO_SOCKETS, "40,3,0-1,62-63", 8000, &cores);

    assert_int_equal(f->lanes_count, 6);
    assert_int_equal(fill(f, 10 * MS), 4); /* two jobs on each node */
    assert_int_equal(f->lanes[0].residents_count, 2);
    assert_int_equal(f->lanes[3].residents_count, 2);
    assert_int_equal(cores_at(cores, 3).index, 40);
    assert_int_equal(fleet_lanes_open(f), 2);
    free(f);
    cores_destroy(cores);
}

static void nodes_that_run_against_the_sockets_keep_their_memory(void **state)
{
    struct cores *cores;
    struct fleet *f =
        fleet_of_machine("pack:2 [numa(indexes=1,0)] core:2 pu:1", NULL, UINT64_MAX, &cores);

    f->nodes[0].memory_bytes = 3999;
    fill(f, 10 * MS);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(f->lanes[i].residents_count, f->lanes[i].numa == 1 ? 4 : 0);
    free(f);
    cores_destroy(cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_with_smt_is_filled_core_by_core),
        cmocka_unit_test(few_jobs_use_few_cores_of_many),
        cmocka_unit_test(jobs_avoid_a_node_without_memory),
        cmocka_unit_test(holes_of_the_cpuset_are_no_lanes),
        cmocka_unit_test(nodes_that_run_against_the_sockets_keep_their_memory),
    };

    return cmocka_run_group_tests_name("packer machines", tests, NULL, NULL);
}
