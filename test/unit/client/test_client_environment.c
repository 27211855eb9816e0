/* Tests rank and size read from variables of launchers, with a table of each launcher's
 * variables. */
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VARIABLES_MAX 6

static const struct launch {
    const char *variables[VARIABLES_MAX][2];
    uint32_t rank, workers;
} launches[] = {
    {{{"GRADPOOL_RANK", "1"}, {"GRADPOOL_SIZE", "11"}}, 1, 11},
    {{{"RANK", "2"}, {"WORLD_SIZE", "12"}}, 2, 12},
    {{{"HOROVOD_RANK", "3"}, {"HOROVOD_SIZE", "13"}, {"HOROVOD_LOCAL_SIZE", "13"}}, 3, 13},
    {{{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "14"}}, 4, 14},
    {{{"MV2_COMM_WORLD_RANK", "5"}, {"MV2_COMM_WORLD_SIZE", "15"}}, 5, 15},
    {{{"JSM_NAMESPACE_RANK", "6"}, {"JSM_NAMESPACE_SIZE", "16"}}, 6, 16},
    {{{"FLUX_TASK_RANK", "7"}, {"FLUX_JOB_SIZE", "17"}}, 7, 17},
    {{{"PMI_RANK", "8"}, {"PMI_SIZE", "18"}, {"MPI_LOCALNRANKS", "18"}}, 8, 18},
    {{{"DMLC_WORKER_ID", "2"},
      {"DMLC_NUM_WORKER", "4"},
      {"BYTEPS_LOCAL_RANK", "3"},
      {"BYTEPS_LOCAL_SIZE", "8"},
      {"DMLC_ROLE", "worker"}},
     19,
     32},
    {{{"SLURM_PROCID", "9"}, {"SLURM_STEP_NUM_TASKS", "19"}, {"SLURM_NTASKS", "19"}}, 9, 19},
};
#define LAUNCHES (sizeof launches / sizeof *launches)

static void set_all(const char *const (*variables)[2])
{
    for (size_t i = 0; i < VARIABLES_MAX && variables[i][0]; i++)
        fixture_set(variables[i][0], variables[i][1]);
}

static void expect(uint32_t rank, uint32_t workers)
{
    gp_job_spec spec;
    ok(gp_job_spec_from_environment(&spec));
    assert_int_equal(spec.rank, rank);
    assert_int_equal(spec.workers, workers);
}

static void every_launchers_variables_are_understood(void **state)
{
    gp_job_spec spec;
    for (size_t i = 0; i < LAUNCHES; i++) {
        fixture_clear(state);
        set_all(launches[i].variables);
        expect(launches[i].rank, launches[i].workers);
    }
    fixture_set("GRADPOOL_JOB", "resnet-7");
    ok(gp_job_spec_from_environment(&spec));
    assert_string_equal(spec.name, "resnet-7");
}

static void each_launcher_overrules_the_launchers_after_it(void **state)
{
    for (size_t i = LAUNCHES; i-- > 0;) {
        set_all(launches[i].variables);
        expect(launches[i].rank, launches[i].workers);
    }
}

static void a_late_worker_has_a_rank_between_the_sizes(void **state)
{
    gp_job_spec spec;
    fixture_set("GRADPOOL_RANK", "3");
    fixture_set("GRADPOOL_SIZE", "2");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "GRADPOOL_RANK is 3", "GRADPOOL_SIZE is 2",
           NULL);
    fixture_set("GRADPOOL_WORKERS_MAX", "4");
    ok(gp_job_spec_from_environment(&spec));
    assert_int_equal(spec.rank, 3);
    assert_int_equal(spec.workers, 2);
    assert_int_equal(spec.workers_max, 4);
    fixture_set("GRADPOOL_WORKERS_MAX", "3");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "GRADPOOL_RANK is 3",
           "GRADPOOL_WORKERS_MAX is 3; expected a rank below the largest number of workers", NULL);
    fixture_set("GRADPOOL_WORKERS_MAX", "1");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "GRADPOOL_WORKERS_MAX is '1'",
           "from 2 to 768", NULL);
}

static void the_largest_number_belongs_to_its_own_launcher(void **state)
{
    gp_job_spec spec;
    fixture_set("RANK", "1");
    fixture_set("WORLD_SIZE", "2");
    fixture_set("GRADPOOL_WORKERS_MAX", "4");
    ok(gp_job_spec_from_environment(&spec));
    assert_int_equal(spec.workers_max, 0);
}

static void with_one_process_a_machine_the_machine_number_is_the_rank(void **state)
{
    fixture_set("DMLC_WORKER_ID", "1");
    fixture_set("DMLC_NUM_WORKER", "2");
    expect(1, 2);
}

static void on_one_machine_the_process_number_is_the_rank(void **state)
{
    fixture_set("DMLC_WORKER_ID", "0");
    fixture_set("DMLC_NUM_WORKER", "1");
    fixture_set("BYTEPS_LOCAL_RANK", "1");
    fixture_set("BYTEPS_LOCAL_SIZE", "2");
    expect(1, 2);
}

static void machines_and_processes_are_checked(void **state)
{
    gp_job_spec spec;
    fixture_set("DMLC_WORKER_ID", "1");
    fixture_set("DMLC_NUM_WORKER", "2");
    fixture_set("BYTEPS_LOCAL_RANK", "8");
    failed(gp_job_spec_from_environment(&spec), -EINVAL,
           "BYTEPS_LOCAL_SIZE is not set, but BYTEPS_LOCAL_RANK is set", NULL);
    fixture_set("BYTEPS_LOCAL_SIZE", "8");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "BYTEPS_LOCAL_RANK is 8",
           "BYTEPS_LOCAL_SIZE is 8", NULL);
    fixture_set("BYTEPS_LOCAL_SIZE", "700");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "DMLC_NUM_WORKER is 2",
           "BYTEPS_LOCAL_SIZE is 700", " is more than 768 workers", NULL);
}

static void one_process_beside_several_is_refused(void **state)
{
    for (size_t i = 1; i < LAUNCHES; i++) {
        if (strcmp(launches[i].variables[0][0], "RANK") == 0)
            continue;
        gp_job_spec spec;
        fixture_clear(state);
        fixture_set("RANK", "0");
        fixture_set("WORLD_SIZE", "1");
        set_all(launches[i].variables);
        failed(gp_job_spec_from_environment(&spec), -EINVAL, "WORLD_SIZE is 1", "is alone",
               "so several processes run", "GRADPOOL_RANK", launches[i].variables[1][0], NULL);
        fixture_set("GRADPOOL_RANK", "0");
        fixture_set("GRADPOOL_SIZE", "1");
        expect(0, 1);
    }
}

static void several_processes_of_a_machine_without_ranks_are_refused(void **state)
{
    static const char *const names[] = {"HOROVOD_LOCAL_SIZE", "BYTEPS_LOCAL_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        gp_job_spec spec;
        fixture_clear(state);
        fixture_set(names[i], "1");
        failed(gp_job_spec_from_environment(&spec), -ENOENT, "neither rank nor size", NULL);
        fixture_set(names[i], "2");
        failed(gp_job_spec_from_environment(&spec), -EINVAL, "no variable gives", "is alone",
               names[i], "is 2", NULL);
    }
}

static void an_environment_without_ranks_names_the_known_variables(void **state)
{
    gp_job_spec spec;
    for (size_t i = 0; i < LAUNCHES; i++)
        failed(gp_job_spec_from_environment(&spec), -ENOENT, launches[i].variables[0][0], NULL);
}

static void invalid_ranks_are_refused(void **state)
{
    gp_job_spec spec;
    fixture_set("RANK", "one");
    fixture_set("WORLD_SIZE", "2");
    failed(gp_job_spec_from_environment(&spec), -EINVAL,
           "RANK is 'one', expected a number from 0 to", NULL);
    fixture_set("RANK", "2");
    failed(
        gp_job_spec_from_environment(&spec), -EINVAL,
        "RANK is 2, but WORLD_SIZE is 2; the first rank is 0, so the last one is the size minus 1",
        NULL);
    fixture_set("RANK", "-1");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "'-1'", NULL);
    unsetenv("WORLD_SIZE");
    failed(gp_job_spec_from_environment(&spec), -EINVAL,
           "WORLD_SIZE is not set, but RANK is set; set both or neither", NULL);
    fixture_set("WORLD_SIZE", "769");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "769", "768", NULL);
}

/* The environments of a batch script and of salloc's shell. This shell may be a job step of one
 * task. */
static void an_allocation_for_many_is_not_taken_for_a_rank(void **state)
{
    gp_job_spec spec;
    fixture_set("SLURM_NTASKS", "4");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "for 4 tasks", "srun", "GRADPOOL_RANK",
           NULL);
    fixture_set("SLURM_PROCID", "0");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "for 4 tasks", "srun", NULL);
    fixture_set("SLURM_STEP_NUM_TASKS", "1");
    failed(gp_job_spec_from_environment(&spec), -EINVAL, "for 4 tasks", "srun", NULL);
    fixture_set("SLURM_NTASKS", "1");
    expect(0, 1);
    unsetenv("SLURM_STEP_NUM_TASKS");
    failed(gp_job_spec_from_environment(&spec), -ENOENT, "SLURM_STEP_NUM_TASKS", NULL);
    fixture_set("SLURM_NTASKS", "4");
    fixture_set("RANK", "1");
    fixture_set("WORLD_SIZE", "2");
    expect(1, 2);
}

#define CASE(name) cmocka_unit_test_setup(name, fixture_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_launchers_variables_are_understood),
        CASE(each_launcher_overrules_the_launchers_after_it),
        CASE(a_late_worker_has_a_rank_between_the_sizes),
        CASE(the_largest_number_belongs_to_its_own_launcher),
        CASE(with_one_process_a_machine_the_machine_number_is_the_rank),
        CASE(on_one_machine_the_process_number_is_the_rank),
        CASE(machines_and_processes_are_checked),
        CASE(one_process_beside_several_is_refused),
        CASE(several_processes_of_a_machine_without_ranks_are_refused),
        CASE(an_environment_without_ranks_names_the_known_variables),
        CASE(invalid_ranks_are_refused),
        CASE(an_allocation_for_many_is_not_taken_for_a_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
