/* Tests the processes of a pool (svc/pool/process.c) and its folder (svc/pool/folder.c). */
#include "svc/base/clock.h"
#include "svc/pool/folder.h"
#include "svc/pool/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 60000

static char folder[] = "/tmp/gradpool-test-XXXXXX";
static const uint64_t number = 0x1122334455667788;

static void path_of(const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
}

static int open_log(void)
{
    char path[PATH_MAX];
    path_of("log", path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* Starts a shell script as incarnation `incarnation` of rank 3. */
static struct pool_process start(char *script, uint64_t incarnation, int log_fd)
{
    char *program[] = {(char *)"sh", (char *)"-c", script, NULL};
    char *variables[] = {(char *)"PLACE=here", NULL};
    const struct process_spec spec = {
        .program = program, .variables = variables, .job = "job", .log_fd = log_fd};
    const struct cookie cookie = {.pool = number, .rank = 3, .incarnation = incarnation};
    struct pool_process process = {.pidfd = -1};
    bool is_final;
    struct err err;
    assert_int_equal(process_start(&spec, &cookie, &process, &is_final, &err), 0);
    return process;
}

static void await_text(int fd, const char *words)
{
    char text[4096];
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    do {
        ssize_t got = pread(fd, text, sizeof text - 1, 0);
        text[got > 0 ? got : 0] = 0;
        (void)poll(NULL, 0, 2);
    } while (!strstr(text, words) && clock_now_ns() < deadline_ns);
    assert_non_null(strstr(text, words));
}

struct found {
    uint32_t workers, others, incarnation;
};

static void count_found(void *context, const struct cookie *cookie, pid_t pid, int pidfd)
{
    struct found *found = context;
    assert_int_equal(cookie->rank, 3);
    assert_true(pidfd >= 0);
    found->incarnation = (uint32_t)cookie->incarnation;
    found->workers += cookie->pid == pid;
    found->others += cookie->pid != pid;
}

static struct found find(void)
{
    struct found found = {0};
    processes_each(number, count_found, &found);
    return found;
}

/* Ends the worker, and reads its status after the processes that it has started have ended. */
static int end_worker(struct pool_process *process)
{
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_clear(process), 0);
    assert_int_equal(waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED), 0);
    process_close(process);
    return info.si_status;
}

static void a_worker_and_its_processes_are_found_by_the_cookie(void **state)
{
    int log = open_log();
    char script[] = "setsid sleep 1000 & sleep 1000 & sleep 0.01; echo started; wait";
    struct pool_process process = start(script, 7, log);
    await_text(log, "started");
    struct found found = find();
    assert_int_equal(found.workers, 1);
    assert_int_equal(found.others, 2);
    assert_int_equal(found.incarnation, 7);
    process_signal(&process, SIGKILL);
    assert_int_equal(end_worker(&process), SIGKILL);
    found = find();
    assert_int_equal(found.workers + found.others, 0);
    close(log);
}

static void processes_of_the_next_start_stay(void **state)
{
    int log = open_log();
    char script[] = "sleep 1000 & echo started; wait";
    struct pool_process first = start(script, 1, log);
    await_text(log, "started");
    int other_log = open_log();
    struct pool_process second = start(script, 2, other_log);
    await_text(other_log, "started");
    process_signal(&first, SIGKILL);
    end_worker(&first);
    struct found found = find();
    assert_int_equal(found.workers, 1);
    assert_int_equal(found.others, 1);
    assert_int_equal(found.incarnation, 2);
    process_signal(&second, SIGKILL);
    end_worker(&second);
    close(log);
    close(other_log);
}

static void a_worker_has_its_variables_and_no_blocked_signal(void **state)
{
    int log = open_log();
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    setenv("PLACE", "elsewhere", 1);
    char script[] = "trap 'exit 5' TERM; echo $PLACE; env | grep -c PLACE=; while :; do sleep "
                    "0.01; done";
    struct pool_process process = start(script, 1, log);
    await_text(log, "here\n1\n");
    process_signal(&process, SIGTERM);
    assert_int_equal(end_worker(&process), 5);
    sigprocmask(SIG_SETMASK, &before, NULL);
    unsetenv("PLACE");
    close(log);
}

static void a_program_that_is_missing_is_final(void **state)
{
    int log = open_log();
    char *program[] = {(char *)"/nowhere/program", NULL};
    char *variables[] = {NULL};
    const struct process_spec spec = {
        .program = program, .variables = variables, .job = "job", .log_fd = log};
    const struct cookie cookie = {.pool = number, .rank = 3, .incarnation = 1};
    struct pool_process process = {.pidfd = -1};
    bool is_final = false;
    struct err err;
    assert_int_equal(process_start(&spec, &cookie, &process, &is_final, &err), -ENOENT);
    assert_true(is_final);
    assert_non_null(strstr(err.text, "/nowhere/program"));
    assert_int_equal(process.pidfd, -1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(errno, ECHILD);
    close(log);
}

/* --- folder --- */

static void a_folder_keeps_its_state(void **state)
{
    char path[PATH_MAX];
    struct pool_folder first, second;
    struct err err;
    path_of("kept", path);
    assert_int_equal(folder_open(path, &first, &err), 0);
    assert_string_equal(first.job, "");
    snprintf(first.job, sizeof first.job, "a job: with = signs");
    first.program = UINT64_MAX;
    first.founders = 5;
    first.incarnations[0] = 1;
    first.incarnations[POOL_RANKS_MAX - 1] = UINT64_MAX;
    first.pids[0] = 77;
    first.identities[0] = UINT64_MAX;
    assert_int_equal(folder_store(&first, &err), 0);
    folder_close(&first);
    assert_int_equal(folder_open(path, &second, &err), 0);
    first.lock_fd = second.lock_fd;
    assert_memory_equal(&first, &second, sizeof first);
    folder_close(&second);
}

static void a_folder_has_one_pool(void **state)
{
    char path[PATH_MAX], pid[32];
    struct pool_folder first, second;
    struct err err;
    path_of("kept", path);
    assert_int_equal(folder_open(path, &first, &err), 0);
    assert_int_equal(folder_open(path, &second, &err), -EEXIST);
    snprintf(pid, sizeof pid, "process %d;", (int)getpid());
    assert_non_null(strstr(err.text, pid));
    folder_close(&first);
    assert_int_equal(folder_open(path, &second, &err), 0);
    folder_close(&second);
}

static void a_damaged_state_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "gradpool-pool 2\npool 1\nfounders 1\n",
        "gradpool-pool 1\npool 0\nfounders 1\n",
        "gradpool-pool 1\nfounders 1\n",
        "gradpool-pool 1\npool 1\nfounders 0\n",
        "gradpool-pool 1\npool 1\nfounders 769\n",
        "gradpool-pool 1\npool 1\nrank 768 1\n",
        "gradpool-pool 1\npool 1\nrank 1\n",
        "gradpool-pool 1\npool 1\n\n",
    };
    char path[PATH_MAX], file[PATH_MAX];
    struct pool_folder found;
    struct err err;
    path_of("damaged", path);
    path_of("damaged/state", file);
    mkdir(path, 0700);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *out = fopen(file, "w");
        fputs(texts[i], out);
        fclose(out);
        if (folder_open(path, &found, &err) != -EBADMSG)
            fail_msg("'%s' was accepted", texts[i]);
    }
}

static int begin(void **state)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    static const char *const names[] = {"kept/lock",     "kept/state", "kept", "damaged/lock",
                                        "damaged/state", "damaged",    "log"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(names[i], path);
        (void)remove(path);
    }
    processes_end_children();
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_is_missing_is_final),
        cmocka_unit_test(a_worker_and_its_processes_are_found_by_the_cookie),
        cmocka_unit_test(processes_of_the_next_start_stay),
        cmocka_unit_test(a_worker_has_its_variables_and_no_blocked_signal),
        cmocka_unit_test(a_folder_keeps_its_state),
        cmocka_unit_test(a_folder_has_one_pool),
        cmocka_unit_test(a_damaged_state_is_refused),
    };
    return cmocka_run_group_tests_name("process", tests, begin, end);
}
