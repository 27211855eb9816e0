/* Imports the package as a training script would, with the python3 in PATH and with the system's
 * python3. Owns the processes, and always ends them. */
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/cli/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SYSTEM_PYTHON "/usr/bin/python3"
#define ANSWER_BYTES 512
#define ANSWER_NS (20 * NS_PER_S)

/* The script removes the current folder from the path, because modules there must not be found. */
static const char question[] = "import sys\n"
                               "sys.path[:] = [path for path in sys.path if path]\n"
                               "try:\n"
                               "    import gradpool\n"
                               "    print('found', gradpool.__version__, gradpool.__file__)\n"
                               "except ModuleNotFoundError:\n"
                               "    print('missing')\n"
                               "except Exception as problem:\n"
                               "    print(str(problem).replace(chr(10), ' '))\n";

static int start(const char *python, int *ret_fd, pid_t *ret_pid)
{
    char *argv[] = {(char *)python, (char *)"-c", (char *)question, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int error = -posix_spawn(ret_pid, python, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error < 0)
        close(ends[0]);
    else
        *ret_fd = ends[0];
    return error;
}

/* Reads until the other end is closed or the time has passed. */
static int read_answer(int fd, char *answer, size_t answer_bytes)
{
    uint64_t deadline_ns = clock_now_ns() + ANSWER_NS;
    size_t used = 0;
    for (;;) {
        struct pollfd source = {.fd = fd, .events = POLLIN};
        if (poll(&source, 1, clock_poll_ms(deadline_ns, clock_now_ns())) <= 0)
            return -ETIMEDOUT;
        ssize_t bytes = read(fd, answer + used, answer_bytes - 1 - used);
        if (bytes <= 0 || used + (size_t)bytes == answer_bytes - 1) {
            answer[used + (size_t)(bytes > 0 ? bytes : 0)] = '\0';
            return 0;
        }
        used += (size_t)bytes;
    }
}

static int ask(const char *python, char *answer, size_t answer_bytes)
{
    _cleanup_fd_ int fd = -1;
    pid_t pid;
    int error = start(python, &fd, &pid);
    if (error < 0)
        return error;
    error = read_answer(fd, answer, answer_bytes);
    kill(pid, SIGKILL); /* all output has been read */
    waitpid(pid, NULL, 0);
    answer[strcspn(answer, "\n")] = '\0';
    return error;
}

static void judge(struct view_checks *checks, const char *name, const char *python,
                  const char *answer, const char *version)
{
    char found[32] = "", path[ANSWER_BYTES] = "";
    if (sscanf(answer, "found %31s %511[^\n]", found, path) == 2) {
        bool fits = strcmp(found, version) == 0;
        doctor_say(checks, name, fits ? VIEW_OK : VIEW_FAIL,
                   fits ? NULL : "install package, library and program from one build",
                   "%s has version %s of the package, %s%s%s", python, found, path,
                   fits ? "" : "; this program is version ", fits ? "" : version);
    } else if (strcmp(answer, "missing") == 0)
        doctor_say(checks, name, VIEW_WARN,
                   "if jobs use this interpreter: install the package there, or add the package's "
                   "folder to PYTHONPATH",
                   "%s has no package gradpool", python);
    else
        doctor_say(checks, name, VIEW_FAIL,
                   "run ldconfig after the installation, or set GRADPOOL_LIBRARY",
                   "%s cannot import gradpool: %s", python,
                   *answer ? answer : "the interpreter ended without output");
}

static void look(struct view_checks *checks, const char *name, const char *python,
                 const char *version)
{
    char answer[ANSWER_BYTES] = "";
    int error = ask(python, answer, sizeof answer);
    if (error < 0)
        doctor_say(checks, name, VIEW_FAIL,
                   "run this interpreter by hand with: -c 'import gradpool'",
                   "%s does not answer: %s", python, err_text(error));
    else
        judge(checks, name, python, answer, version);
}

/* Finds the first python3 in PATH. Returns false if there is none. */
static bool find_in_path(char ret_python[PATH_MAX])
{
    const char *folders = getenv("PATH");
    for (size_t bytes; folders && *folders; folders += bytes + (folders[bytes] == ':')) {
        bytes = strcspn(folders, ":");
        int written = snprintf(ret_python, PATH_MAX, "%.*s/python3", (int)bytes, folders);
        if (bytes > 0 && written < PATH_MAX && access(ret_python, X_OK) == 0)
            return true;
    }
    return false;
}

/* Returns whether the interpreter is the system's. The folders are compared. A comparison of files
 * would be wrong: the python3 of a virtual environment is a link to the system's file, but finds
 * other packages. */
static bool is_of_system(const char *python)
{
    char folder[PATH_MAX];
    _cleanup_free_ char *resolved = NULL;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(python, '/') - python), python);
    resolved = realpath(folder, NULL);
    return resolved && strcmp(resolved, "/usr/bin") == 0;
}

void doctor_python(struct view_checks *checks, const char *version)
{
    char python[PATH_MAX];
    bool is_found = find_in_path(python);
    if (is_found)
        look(checks, "python", python, version);
    else
        doctor_say(checks, "python", VIEW_WARN, "if scripts are in Python: install python3",
                   "there is no python3 in PATH");
    if ((!is_found || !is_of_system(python)) && access(SYSTEM_PYTHON, X_OK) == 0)
        look(checks, "usr-python", SYSTEM_PYTHON, version);
}
