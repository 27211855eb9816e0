/* Tests that libgradpool changes no signal handler of its process. */
#include "client/gradpool.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int handled_at_start;

/* Counts the signals that have a handler before cmocka installs its own handlers. Sanitizers
 * install handlers, too. */
static void count_handled(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGABRT, SIGILL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action;
        sigaction(numbers[i], NULL, &action);
        handled_at_start += action.sa_handler != SIG_DFL;
    }
}

static void a_process_that_links_the_library_dies_of_ctrl_c(void **state)
{
    int status;
    assert_string_equal(gp_version(), GP_VERSION);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        raise(SIGINT);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

static void no_signal_has_a_handler_when_main_begins(void **state)
{
    assert_int_equal(handled_at_start, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_links_the_library_dies_of_ctrl_c),
        cmocka_unit_test(no_signal_has_a_handler_when_main_begins),
    };
    count_handled();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
