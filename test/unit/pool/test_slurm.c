/* Tests the engine of Slurm (svc/pool/slurm) with commands in PATH that stand in for Slurm's: their
 * answers are files of the test's folder, and their arguments are appended to logs there. */
#include "svc/base/clock.h"
#include "svc/pool/slurm/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 60000
#define POOL UINT64_C(0x1122334455667788)
#define NAME "gradpool-1122334455667788-"

static char place[] = "/tmp/gradpool-test-XXXXXX";
static struct pool_folder folder;
static struct pool_engine *engine;
static int signal_pipe[2], ended_by;
static bool is_ended_by_say; /* the first line for the user is answered with a signal */

/* --- files --- */

static void put(const char *name, const char *text)
{
    char path[PATH_MAX], next[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/%s", place, name);
    snprintf(next, sizeof next, "%s.next", path);
    FILE *file = fopen(next, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(next, 0700), 0);
    assert_int_equal(rename(next, path), 0);
}

static void drop(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", place, name);
    assert_true(unlink(path) == 0 || errno == ENOENT);
}

static const char *get(const char *name)
{
    static char text[65536];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", place, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[got > 0 ? got : 0] = 0;
    if (fd >= 0)
        close(fd);
    return text;
}

/* Writes the list of jobs: one job, as squeue prints it. */
static const char *job_line(const char *name, const char *id, const char *state, const char *code,
                            const char *node, const char *reason)
{
    static char line[600];
    snprintf(line, sizeof line, "%-80s%-40s%-32s%-16s%-128s%-128s\n", name, id, state, code, node,
             reason);
    return line;
}

static const char *step_line(const char *name, const char *id, const char *state)
{
    static char line[600];
    snprintf(line, sizeof line, "%-80s%-40s%-32s%-128s\n", name, id, state, "n1");
    return line;
}

/* --- the engine --- */

/* The pipe stands in for a signalfd. */
static void send_signal(int number)
{
    const struct signalfd_siginfo info = {.ssi_signo = (uint32_t)number};
    assert_int_equal(write(signal_pipe[1], &info, sizeof info), sizeof info);
}

static void say(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put("said", text);
    if (is_ended_by_say)
        send_signal(SIGTERM);
}

static void begin(bool has_steps)
{
    static char *const options[] = {(char *)"--partition=small", NULL};
    static struct slurm_setup setup;
    setup = (struct slurm_setup){&folder, options, signal_pipe[0], &ended_by, say};
    struct err err;
    if (has_steps)
        setenv("SLURM_JOB_ID", "5", 1);
    else
        unsetenv("SLURM_JOB_ID");
    assert_int_equal(engine_slurm_create(&setup, &engine, &err), 0);
}

static void start(uint32_t rank, uint64_t incarnation, char *script)
{
    static char *program[] = {(char *)"sh", (char *)"-c", NULL, NULL};
    char *variables[] = {(char *)"GRADPOOL_RANK=0", (char *)"GRADPOOL_JOB=job", NULL};
    const struct engine_start from = {
        .program = program, .variables = variables, .rank = rank, .incarnation = incarnation};
    bool is_final;
    struct err err;
    program[2] = script;
    assert_int_equal(engine->calls->start(engine, &from, &is_final, &err), 0);
}

/* Waits for the next event of this kind. Lines for the user are kept in the file `said`. */
static struct engine_event await_event(enum engine_event_kind kind)
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    struct engine_event event;
    while (clock_now_ns() < deadline_ns) {
        struct pollfd fd = {.fd = engine->calls->fd(engine), .events = POLLIN};
        (void)poll(&fd, 1, 100);
        while (engine->calls->next(engine, &event)) {
            if (event.kind == ENGINE_SAYS)
                put("said", event.text);
            if (event.kind == kind)
                return event;
        }
    }
    fail_msg("no event of kind %d", (int)kind);
    return event;
}

static void await_text(const char *name, const char *words)
{
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    struct engine_event event;
    while (!strstr(get(name), words) && clock_now_ns() < deadline_ns) {
        struct pollfd fd = {.fd = engine->calls->fd(engine), .events = POLLIN};
        (void)poll(&fd, 1, 20);
        while (engine->calls->next(engine, &event))
            if (event.kind == ENGINE_SAYS)
                put("said", event.text);
    }
    assert_non_null(strstr(get(name), words));
}

/* --- set-up --- */

static void put_commands(void)
{
    char text[4096];
    snprintf(text, sizeof text,
             "#!/bin/sh\ncd %s\nwhile [ -e hang ]; do sleep 0.02; done\n"
             "if [ -e down ]; then echo 'slurm_load_jobs error: no controller' >&2; exit 1; fi\n"
             "case \"$*\" in *--steps*) cat steps;; *) cat jobs;; esac\n",
             place);
    put("bin/squeue", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncd %s\necho \"$@\" >>sbatch.log\n"
             "[ ! -e late ] || mv late jobs\nif [ -e refuse ]; then\n"
             "echo 'sbatch: error: invalid partition' >&2\n"
             "echo 'sbatch: error: Batch job submission failed' >&2\nexit 1\nfi\necho '17;east'\n",
             place);
    put("bin/sbatch", text);
    snprintf(text, sizeof text, "#!/bin/sh\ncd %s\necho \"$@\" >>scancel.log\n", place);
    put("bin/scancel", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\ncd %s\necho \"$@\" >>srun.log\nif [ -e refuse ]; then\n"
             "echo 'srun: error: Unable to create step for job 5' >&2\nexit 1\nfi\n"
             "while [ $1 != /bin/sh ]; do case $1 in --output=*) out=${1#--output=};; esac\nshift\n"
             "done\n\"$@\" >>$out\ncode=$?\n"
             "[ $code = 0 ] || echo \"srun: error: n9: task 0: Exited with exit code $code\" >&2\n"
             "exit $code\n",
             place);
    put("bin/srun", text);
}

static int set_up(void **state)
{
    char path[PATH_MAX];
    snprintf(place, sizeof place, "/tmp/gradpool-test-XXXXXX");
    assert_non_null(mkdtemp(place));
    snprintf(path, sizeof path, "%s/bin", place);
    assert_int_equal(mkdir(path, 0700), 0);
    put_commands();
    is_ended_by_say = false;
    put("jobs", "");
    put("steps", "");
    snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", place);
    setenv("PATH", path, 1);
    folder = (struct pool_folder){.lock_fd = -1, .pool = POOL, .job = "job"};
    snprintf(folder.path, sizeof folder.path, "%s", place);
    return pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK);
}

static int tear_down(void **state)
{
    char *words[] = {(char *)"rm", (char *)"-rf", place, NULL};
    drop("hang");
    engine->calls->end(engine);
    close(signal_pipe[0]);
    close(signal_pipe[1]);
    pid_t pid = fork();
    if (pid == 0) {
        execv("/bin/rm", words);
        _exit(1);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

/* --- texts --- */

static void a_line_of_squeue_gives_worker_state_and_end(void **state)
{
    static const struct {
        const char *state, *code;
        enum slurm_phase phase;
        enum rank_end end;
        int number;
    } rows[] = {{"PENDING", "0", SLURM_PENDING, END_UNKNOWN, 0},
                {"CONFIGURING", "0", SLURM_PENDING, END_UNKNOWN, 0},
                {"RUNNING", "0", SLURM_RUNNING, END_UNKNOWN, 0},
                {"COMPLETING", "0", SLURM_ENDING, END_UNKNOWN, 0},
                {"COMPLETED", "0", SLURM_OVER, END_EXIT, 0},
                {"FAILED", "1792", SLURM_OVER, END_EXIT, 7},
                {"FAILED", "9", SLURM_OVER, END_SIGNAL, 9},
                {"NODE_FAIL", "0", SLURM_OVER, END_UNKNOWN, 0},
                {"CANCELLED", "15", SLURM_OVER, END_UNKNOWN, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct slurm_entry entry;
        const char *line =
            job_line(NAME "3-7", "12", rows[i].state, rows[i].code, "n1", "Resources");
        assert_true(slurm_line_parse(line, false, &entry));
        assert_int_equal(entry.phase, rows[i].phase);
        assert_int_equal(entry.cookie.pool, POOL);
        assert_int_equal(entry.cookie.rank, 3);
        assert_int_equal(entry.cookie.incarnation, 7);
        assert_string_equal(entry.id, "12");
        assert_string_equal(entry.node, "n1");
        assert_string_equal(entry.reason, "Resources");
        if (entry.phase == SLURM_OVER)
            assert_int_equal(entry.end, rows[i].end);
        if (entry.phase == SLURM_OVER && entry.end != END_UNKNOWN)
            assert_int_equal(entry.number, rows[i].number);
    }
}

static void lines_of_other_jobs_are_left_out(void **state)
{
    static const char *const names[] = {"train",  "gradpool-",  "gradpool-12-x-1",
                                        NAME "1", NAME "1-2-3", NAME "768-1"};
    struct slurm_entry entry;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(
            slurm_line_parse(job_line(names[i], "12", "RUNNING", "0", "n1", ""), false, &entry));
    assert_false(
        slurm_line_parse(job_line(NAME "1-2", "--me", "RUNNING", "0", "n1", ""), false, &entry));
    assert_false(slurm_line_parse("", true, &entry));
    assert_false(slurm_line_parse("slurm_load_jobs error: no controller", true, &entry));
}

/* --- jobs --- */

static void a_job_waits_runs_and_gives_its_exit_code(void **state)
{
    begin(false);
    put("jobs", job_line(NAME "0-1", "17", "PENDING", "0", "", "Priority"));
    start(0, 1, (char *)"true");
    assert_string_equal(await_event(ENGINE_WAITS).text,
                        "job 17 of Slurm waits in the queue: Priority");
    assert_non_null(strstr(get("sbatch.log"), "--partition=small --nodes=1 --ntasks=1 --export=ALL "
                                              "--open-mode=append --job-name=" NAME "0-1 "));
    put("jobs", job_line(NAME "0-1", "17", "RUNNING", "0", "n1", "None"));
    assert_int_equal(await_event(ENGINE_RUNS).rank, 0);
    engine->calls->signal(engine, 0, SIGTERM);
    await_text("scancel.log", "--signal=TERM --batch 17");
    put("jobs", job_line(NAME "0-1", "17", "FAILED", "1792", "n1", "NonZeroExitCode"));
    struct engine_event event = await_event(ENGINE_ENDED);
    assert_int_equal(event.end, END_EXIT);
    assert_int_equal(event.number, 7);
}

static void a_waiting_job_is_removed_instead_of_signalled(void **state)
{
    begin(false);
    put("jobs", job_line(NAME "0-1", "17", "PENDING", "0", "", "Priority"));
    start(0, 1, (char *)"true");
    await_event(ENGINE_WAITS);
    engine->calls->signal(engine, 0, SIGTERM);
    await_text("scancel.log", "17\n");
    assert_string_equal(get("scancel.log"), "17\n");
    put("jobs", "");
    assert_int_equal(await_event(ENGINE_ENDED).end, END_UNKNOWN);
}

static void a_refused_job_is_reported_with_the_text_of_slurm(void **state)
{
    begin(false);
    put("refuse", "");
    start(0, 1, (char *)"true");
    assert_string_equal(await_event(ENGINE_REFUSED).text,
                        "sbatch: error: Batch job submission failed");
    struct cookie cookie;
    assert_false(engine->calls->find(engine, 0, &cookie));
}

static void a_job_whose_submission_has_failed_is_found_by_its_name(void **state)
{
    begin(false);
    put("refuse", "");
    put("late", job_line(NAME "0-1", "23", "RUNNING", "0", "n1", "None"));
    start(0, 1, (char *)"true");
    assert_int_equal(await_event(ENGINE_RUNS).rank, 0);
    engine->calls->signal(engine, 0, SIGKILL);
    await_text("scancel.log", "--signal=KILL --full 23\n--signal=KILL --full 23"); /* repeated */
    put("jobs", "");
    await_event(ENGINE_ENDED);
}

static void a_silent_slurm_starts_no_worker_and_blocks_no_call(void **state)
{
    struct engine_event event;
    begin(false);
    put("down", "");
    start(0, 1, (char *)"true");
    assert_string_equal(await_event(ENGINE_WAITS).text,
                        "Slurm does not answer: slurm_load_jobs error: no controller");
    assert_string_equal(get("sbatch.log"), "");
    assert_non_null(strstr(get("said"), "; workers train on, and none is started or ended until "
                                        "it answers"));
    put("hang", "");
    drop("down");
    put("late", job_line(NAME "0-1", "17", "RUNNING", "0", "n1", "None"));
    for (int i = 0; i < 50; i++) {
        struct pollfd fd = {.fd = engine->calls->fd(engine), .events = POLLIN};
        (void)poll(&fd, 1, 50);
        while (engine->calls->next(engine, &event))
            assert_int_equal(event.kind, ENGINE_SAYS);
    }
    drop("hang");
    await_event(ENGINE_RUNS);
}

static void a_command_without_an_end_is_killed(void **state)
{
    struct slurm *s;
    begin(false);
    s = (struct slurm *)engine;
    put("hang", "");
    start(0, 1, (char *)"true");
    struct engine_event event;
    while (s->command.process.pidfd < 0)
        (void)engine->calls->next(engine, &event);
    s->deadline_ns = 1; /* its time is over */
    assert_string_equal(await_event(ENGINE_WAITS).text,
                        "Slurm does not answer: a command has not ended after 30 s");
}

static void a_failure_without_a_text_and_a_command_that_is_too_long_are_refused(void **state)
{
    static char *const none[] = {NULL};
    struct slurm_words words = {.count = COMMAND_WORDS_MAX + 1};
    struct slurm_command command;
    const struct cookie cookie = {.pool = POOL};
    struct err err;
    bool is_final;
    begin(false);
    put("bin/sbatch", "#!/bin/sh\nexit 1\n");
    start(0, 1, (char *)"true");
    assert_string_equal(await_event(ENGINE_REFUSED).text,
                        "a command of Slurm has failed without a text");
    assert_int_equal(command_start(&words, &cookie, "job", none, &command, &is_final, &err),
                     -E2BIG);
    assert_true(is_final);
    assert_non_null(strstr(err.text, "arguments; use fewer"));
}

static void a_worker_that_slurm_does_not_end_is_given_up(void **state)
{
    begin(false);
    put("jobs", job_line(NAME "0-1", "17", "RUNNING", "0", "n1", "None"));
    start(0, 1, (char *)"true");
    await_event(ENGINE_RUNS);
    engine->calls->signal(engine, 0, SIGKILL);
    await_text("scancel.log", "--signal=KILL --full 17");
    ((struct slurm *)engine)->workers[0].killed_ns = 1; /* SIGKILL was sent long ago */
    assert_int_equal(await_event(ENGINE_ENDED).end, END_UNKNOWN);
    assert_non_null(strstr(get("said"),
                           "rank 0: Slurm has not ended 17 on node n1 within 30 s; its "
                           "process may live, and cannot join the job again"));
}

static void an_older_start_that_lives_is_ended(void **state)
{
    char jobs[2048];
    begin(false);
    snprintf(jobs, sizeof jobs, "%s", job_line(NAME "0-1", "9", "RUNNING", "0", "n2", "None"));
    put("jobs", jobs);
    strncat(jobs, job_line(NAME "0-2", "17", "RUNNING", "0", "n1", "None"),
            sizeof jobs - strlen(jobs) - 1);
    put("late", jobs);
    start(0, 2, (char *)"true");
    await_text("scancel.log", "9\n");
    await_event(ENGINE_RUNS);
    assert_null(strstr(get("scancel.log"), "17"));
}

static void a_new_pool_finds_the_newest_start_of_each_rank(void **state)
{
    char jobs[4096];
    struct cookie cookie;
    struct err err;
    folder.incarnations[0] = 5;
    snprintf(jobs, sizeof jobs, "%s", job_line(NAME "0-4", "8", "RUNNING", "0", "n1", "None"));
    strncat(jobs, job_line(NAME "0-5", "9", "RUNNING", "0", "n1", "None"),
            sizeof jobs - strlen(jobs) - 1);
    strncat(jobs, job_line(NAME "1-1", "10", "COMPLETED", "0", "n1", "None"),
            sizeof jobs - strlen(jobs) - 1);
    put("jobs", jobs);
    begin(false);
    assert_int_equal(engine->calls->adopt(engine, &err), 0);
    assert_true(engine->calls->find(engine, 0, &cookie));
    assert_int_equal(cookie.incarnation, 5);
    assert_false(engine->calls->find(engine, 1, &cookie));
    engine->calls->end_strays(engine);
    await_text("scancel.log", "8\n");
    put("jobs", "");
    assert_int_equal(await_event(ENGINE_ENDED).end, END_UNKNOWN);
}

static void an_adoption_without_an_answer_is_shown(void **state)
{
    struct err err;
    folder.incarnations[0] = 5;
    put("down", "");
    begin(false);
    is_ended_by_say = true;
    send_signal(SIGUSR2); /* a wish of the study ends no adoption */
    assert_int_equal(engine->calls->adopt(engine, &err), -EINTR);
    assert_int_equal(ended_by, SIGTERM);
    assert_string_equal(err.text, "ended by a signal");
    assert_non_null(
        strstr(get("said"), ": its workers are not known, because Slurm does not answer: "));
    assert_non_null(strstr(get("said"), "no controller; the pool tries again"));
}

static void an_adoption_kills_a_list_that_has_no_end(void **state)
{
    struct err err;
    folder.incarnations[0] = 5;
    put("bin/squeue", "#!/bin/sh\nexec sleep 1000\n");
    begin(false);
    is_ended_by_say = true;
    assert_int_equal(engine->calls->adopt(engine, &err), -EINTR);
    assert_non_null(strstr(get("said"), "squeue has not ended after 30 s"));
}

static void a_node_with_three_failures_is_left_out(void **state)
{
    begin(false);
    for (uint64_t i = 1; i <= 3; i++) {
        char name[64];
        snprintf(name, sizeof name, NAME "0-%" PRIu64, i);
        put("jobs", job_line(name, "17", "FAILED", "256", "n4", "NonZeroExitCode"));
        start(0, i, (char *)"false");
        await_event(ENGINE_ENDED);
    }
    await_text("said", "3 workers in a row have failed on node n4, so no worker starts there for "
                       "60 s");
    assert_null(strstr(get("sbatch.log"), "--exclude"));
    start(0, 4, (char *)"true");
    await_text("sbatch.log", "--exclude=n4");
}

/* --- steps --- */

static void the_only_node_of_an_allocation_is_not_left_out(void **state)
{
    begin(true);
    for (uint64_t i = 1; i <= 4; i++) {
        start(0, i, (char *)"exit 1");
        await_event(ENGINE_ENDED);
    }
    assert_null(strstr(get("srun.log"), "--exclude"));
    assert_string_equal(get("said"), "");
}

static void a_step_that_waits_is_shown_with_the_text_of_slurm(void **state)
{
    begin(true);
    put("bin/srun", "#!/bin/sh\necho 'srun: Job 5 step creation temporarily disabled, retrying "
                    "(Requested nodes are busy)' >&2\nexec sleep 1000\n");
    start(0, 1, (char *)"true");
    assert_non_null(strstr(await_event(ENGINE_WAITS).text, "step creation temporarily disabled"));
    engine->calls->signal(engine, 0, SIGTERM);
    await_event(ENGINE_ENDED);
}

static void a_step_gives_its_exit_code_and_its_output(void **state)
{
    begin(true);
    start(0, 3, (char *)"echo here; exit 7");
    struct engine_event event = await_event(ENGINE_ENDED);
    assert_int_equal(event.end, END_EXIT);
    assert_int_equal(event.number, 7);
    assert_non_null(strstr(get("rank-0.log"), "gradpool run: rank 0 of job job, start 3 on node "));
    assert_non_null(strstr(get("rank-0.log"), "here\n"));
    assert_string_equal(((struct slurm *)engine)->nodes[0].name, "n9");
}

static void a_refused_step_is_reported_with_the_text_of_slurm(void **state)
{
    begin(true);
    put("refuse", "");
    start(0, 1, (char *)"true");
    assert_string_equal(await_event(ENGINE_REFUSED).text,
                        "srun: error: Unable to create step for job 5");
}

static void a_step_whose_srun_was_killed_is_ended_before_its_rank(void **state)
{
    begin(true);
    put("steps", step_line(NAME "0-1", "5.2", "RUNNING"));
    start(0, 1, (char *)"exec sleep 1000");
    await_event(ENGINE_RUNS);
    process_signal(&((struct slurm *)engine)->workers[0].client.process, SIGKILL);
    await_text("scancel.log", "--signal=KILL 5.2");
    struct cookie cookie;
    assert_true(engine->calls->find(engine, 0, &cookie));
    put("steps", "");
    assert_int_equal(await_event(ENGINE_ENDED).end, END_UNKNOWN);
}

static void a_worker_of_the_other_way_is_not_adopted(void **state)
{
    struct err err;
    folder.incarnations[0] = 1;
    put("jobs", job_line(NAME "0-1", "17", "RUNNING", "0", "n1", "None"));
    begin(true);
    assert_int_equal(engine->calls->adopt(engine, &err), -EEXIST);
    assert_non_null(strstr(err.text, "of Slurm is a worker of an earlier pool that ran"));
    assert_non_null(strstr(err.text, "job 17 of Slurm is a worker of an earlier pool that ran "
                                     "outside of an allocation; start this command there"));
}

#define SLURM_CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_of_squeue_gives_worker_state_and_end),
        cmocka_unit_test(lines_of_other_jobs_are_left_out),
        SLURM_CASE(a_job_waits_runs_and_gives_its_exit_code),
        SLURM_CASE(a_waiting_job_is_removed_instead_of_signalled),
        SLURM_CASE(a_refused_job_is_reported_with_the_text_of_slurm),
        SLURM_CASE(a_job_whose_submission_has_failed_is_found_by_its_name),
        SLURM_CASE(a_silent_slurm_starts_no_worker_and_blocks_no_call),
        SLURM_CASE(a_command_without_an_end_is_killed),
        SLURM_CASE(a_failure_without_a_text_and_a_command_that_is_too_long_are_refused),
        SLURM_CASE(a_worker_that_slurm_does_not_end_is_given_up),
        SLURM_CASE(an_older_start_that_lives_is_ended),
        SLURM_CASE(a_new_pool_finds_the_newest_start_of_each_rank),
        SLURM_CASE(an_adoption_without_an_answer_is_shown),
        SLURM_CASE(an_adoption_kills_a_list_that_has_no_end),
        SLURM_CASE(a_node_with_three_failures_is_left_out),
        SLURM_CASE(the_only_node_of_an_allocation_is_not_left_out),
        SLURM_CASE(a_step_that_waits_is_shown_with_the_text_of_slurm),
        SLURM_CASE(a_step_gives_its_exit_code_and_its_output),
        SLURM_CASE(a_refused_step_is_reported_with_the_text_of_slurm),
        SLURM_CASE(a_step_whose_srun_was_killed_is_ended_before_its_rank),
        SLURM_CASE(a_worker_of_the_other_way_is_not_adopted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
