/* Runs client/example.c in two processes with the scripted service. The argument is the program's
 * path. */
#include "test/unit/client/service_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char *program;
static struct service_rig rig;

/* Starts one worker. Its output can be read from `ret_fd`. */
static pid_t start(const char *rank, int *ret_fd)
{
    char endpoint[96], rank_variable[32];
    char *environment[] = {
        endpoint, rank_variable, "WORLD_SIZE=2", "GRADPOOL_JOB=job", "ASAN_OPTIONS=detect_leaks=0",
        NULL};
    char *arguments[] = {program, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid;
    snprintf(endpoint, sizeof endpoint, "GRADPOOL_ENDPOINT=%s", rig.endpoint);
    snprintf(rank_variable, sizeof rank_variable, "RANK=%s", rank);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, program, &actions, NULL, arguments, environment), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *ret_fd = ends[0];
    return pid;
}

static void finish(pid_t pid, int fd, char *output, size_t output_bytes)
{
    size_t used = 0;
    ssize_t got;
    int status;
    while ((got = read(fd, output + used, output_bytes - 1 - used)) > 0)
        used += (size_t)got;
    output[used] = '\0';
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_example_prints_the_mean_of_both_ranks(void **state)
{
    static const char want[] = "step 0: mean 1.5 0\nstep 1: mean 1.5 1\nstep 2: mean 1.5 2\n";
    char output[512];
    int fds[2];
    pid_t pids[2];
    script_start(&rig, 2);
    pids[0] = start("0", &fds[0]);
    pids[1] = start("1", &fds[1]);
    for (int i = 0; i < 2; i++) {
        finish(pids[i], fds[i], output, sizeof output);
        assert_string_equal(output, want);
    }
    script_lock(&rig);
    assert_int_equal(rig.leaves, 2); /* gp_disconnect() has left both jobs */
    script_unlock(&rig);
    script_stop(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_prints_the_mean_of_both_ranks),
    };
    if (argc != 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
