/* Makes lanes slow. Owns the programs that occupy a core (hogs), a queueing discipline, and the
 * file of numbers that lanes read. */
#include "bench/stragglers/injector.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMMAND_NS (20 * NS_PER_S)
#define WORDS_MAX 32
#define SLOW_TASK 1 /* number of the first task of the job */

extern char **environ;

const char *injector_name(enum injector_kind kind)
{
    static const char *const names[] = {"none", "sleep", "task", "hog", "cap", "skew"};
    return names[kind];
}

int injector_init(struct injector *x, char *ret_path, size_t path_bytes)
{
    size_t bytes = sizeof *x->numbers;
    snprintf(ret_path, path_bytes, "/dev/shm/gradpool-bench-slow.%d", (int)getpid());
    int fd = open(ret_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return -errno;
    x->numbers = map;
    for (size_t i = 0; i < INJECTOR_LANES; i++)
        x->numbers->ns_per_kib[i] = x->usual;
    return setenv(SLOWING_VARIABLE, ret_path, 1);
}

void injector_fini(struct injector *x, const char *path)
{
    if (x->numbers)
        munmap(x->numbers, sizeof *x->numbers);
    unsetenv(SLOWING_VARIABLE);
    unlink(path);
}

/* Runs a command, given as words separated by spaces. */
static int run(const char *words)
{
    char text[512], *argv[WORDS_MAX + 1] = {0}, *at = text;
    size_t count = 0;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; count < WORDS_MAX && (word = strsep(&at, " "));)
        argv[count++] = word;
    pid_t pid = process_spawn(argv, environ, "/dev/null");
    return pid < 0 ? pid : process_reap(pid, clock_now_ns() + COMMAND_NS) == 0 ? 0 : -EIO;
}

/* --- hogs --- */

static void burn(uint32_t core)
{
    process_bind(core);
    for (volatile uint64_t i = 0;; i++) {
    }
}

/* Starts programs that occupy a core. Lane number n is bound to the n-th core, cyclically. */
static int start_hogs(struct injector *x)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t core = cores > 0 ? x->lane % (uint32_t)cores : 0;
    for (size_t i = 0; i < INJECTOR_HOGS; i++) {
        pid_t pid = process_fork(SIGKILL);
        if (pid < 0)
            return -errno;
        if (pid == 0)
            burn(core);
        x->hogs[i] = pid;
    }
    return 0;
}

static void end_hogs(struct injector *x)
{
    for (size_t i = 0; i < INJECTOR_HOGS; i++) {
        if (x->hogs[i] <= 0)
            continue;
        kill(x->hogs[i], SIGKILL);
        process_reap(x->hogs[i], clock_now_ns() + NS_PER_S);
        x->hogs[i] = 0;
    }
}

/* --- bandwidth --- */

int injector_enter_network(void)
{
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    return run("ip link set lo up");
}

static int begin_cap(const struct injector *x)
{
    char filter[256], shaped[256];
    int r = run("tc qdisc add dev lo root handle 1: htb default 10 r2q 1000");
    snprintf(shaped, sizeof shaped,
             "tc class add dev lo parent 1: classid 1:20 htb rate %umbit burst 64k", x->cap_mbit);
    if (r == 0)
        r = run("tc class add dev lo parent 1: classid 1:10 htb rate 10gbit");
    if (r == 0)
        r = run(shaped);
    for (int way = 0; r == 0 && way < 2; way++) {
        snprintf(filter, sizeof filter,
                 "tc filter add dev lo parent 1: protocol ip u32 match ip %s %u 0xffff flowid 1:20",
                 way ? "sport" : "dport", x->port + x->lane);
        r = run(filter);
    }
    return r;
}

/* --- all of them --- */

static int skew(const struct injector *x)
{
    char words[4 * PATH_MAX];
    snprintf(words, sizeof words, "%s move %s %u --endpoint %s", x->service->program, x->job,
             x->lane + 1, x->service->endpoint);
    return run(words);
}

int injector_begin(struct injector *x)
{
    switch (x->kind) {
    case INJECTOR_SLEEP: x->numbers->ns_per_kib[x->lane] = x->usual * x->times; return 0;
    case INJECTOR_TASK:
        x->numbers->task_ns = x->task_ns;
        x->numbers->task = SLOW_TASK;
        return 0;
    case INJECTOR_HOG: return start_hogs(x);
    case INJECTOR_CAP: return begin_cap(x);
    case INJECTOR_SKEW: return skew(x);
    default: return 0;
    }
}

void injector_end(struct injector *x)
{
    if (x->kind == INJECTOR_SLEEP)
        x->numbers->ns_per_kib[x->lane] = x->usual;
    x->numbers->task = 0;
    if (x->kind == INJECTOR_CAP)
        run("tc qdisc del dev lo root");
    end_hogs(x);
}
