/* Starts and ends loads. Owns the process and the tenant of a load. Must never leave connections of
 * a load to the next turn. */
#include "bench/fences/load.h"

#include "bench/fences/operator.h"
#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SEED "1"
#define LASTS_MS "600000" /* longest run of a load: longer than any turn */
#define BEGIN_NS (180 * NS_PER_S)
#define END_NS (60 * NS_PER_S)
#define LOOK_NS (10 * NS_PER_MS)
#define REST_NS (10 * NS_PER_S) /* longest wait until the service is idle */
#define REST_LOOK_NS (100 * NS_PER_MS)
/* the service counts as busy above this CPU time between two measurements */
#define REST_CPU_NS (5 * NS_PER_MS)

extern char **environ;

const struct load loads[LOADS] = {
    {"plans", LOAD_BUSY},  {"lists", LOAD_BUSY}, {"halves", LOAD_BUSY}, {"greetings", LOAD_BUSY},
    {"storms", LOAD_BUSY}, {"untouched", NULL},  {"lends", NULL},       {"punches", NULL},
    {"wide", "narrow"},    {"strangers", NULL},  {"junk", NULL},
};

static void nap(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    nanosleep(&time, NULL);
}

static int make_nicer(pid_t pid)
{
    int own = getpriority(PRIO_PROCESS, 0);
    return setpriority(PRIO_PROCESS, (id_t)pid, own + LOAD_NICER) < 0 ? -errno : 0;
}

/* --- a busy loop --- */

static int begin_busy(struct running_load *l)
{
    pid_t pid = process_fork(SIGKILL);
    if (pid < 0)
        return -errno;
    if (pid > 0) {
        l->pid = pid;
        return make_nicer(pid);
    }
    for (volatile uint64_t turns = 0;; turns++) {
    }
}

/* --- a hostile process --- */

static int spawn_hostile(struct running_load *l, const char *listen, const char *attack,
                         const char *key)
{
    char program[PATH_MAX];
    char *argv[] = {program, (char *)listen, (char *)SEED, (char *)attack, (char *)LASTS_MS, NULL};
    if (process_find_beside("gradpool-bench-hostile", program, sizeof program) < 0) {
        fprintf(stderr,
                "gradpool-bench: gradpool-bench-hostile is not in the folder of this program\n");
        return -ENOENT;
    }
    setenv("GRADPOOL_KEY_FILE", key, 1);
    pid_t pid = process_spawn_apart(argv, environ, l->output, l->service->log);
    unsetenv("GRADPOOL_KEY_FILE");
    if (pid < 0)
        return pid;
    l->pid = pid;
    return make_nicer(pid);
}

/* Reads the last line of the file, without the line feed. */
static void read_output(const struct running_load *l, char *ret_line, size_t line_bytes)
{
    FILE *file = fopen(l->output, "re");
    *ret_line = 0;
    while (file && fgets(ret_line, (int)line_bytes, file)) {
    }
    if (file)
        fclose(file);
    ret_line[strcspn(ret_line, "\n")] = 0;
}

static int await_ready(const struct running_load *l, const char *attack)
{
    char line[64];
    uint64_t until_ns = clock_now_ns() + BEGIN_NS;
    for (read_output(l, line, sizeof line); strcmp(line, "ready") != 0;
         read_output(l, line, sizeof line)) {
        if (clock_now_ns() > until_ns) {
            fprintf(stderr, "gradpool-bench: %s has not begun in time; see %s\n", attack,
                    l->service->log);
            return -ETIMEDOUT;
        }
        nap(LOOK_NS);
    }
    return 0;
}

static int begin_hostile(struct running_load *l, const char *listen, const char *attack)
{
    static unsigned number;
    char key[KEY_PATH_BYTES];
    snprintf(l->tenant, sizeof l->tenant, "%s-%u", attack, ++number);
    snprintf(l->output, sizeof l->output, "%s/%s", l->service->folder, l->tenant);
    int r = operator_add_tenant(l->service, l->tenant, false, key);
    if (r < 0) {
        *l->tenant = 0;
        return r;
    }
    r = spawn_hostile(l, listen, attack, key);
    return r < 0 ? r : await_ready(l, attack);
}

/* --- both --- */

int load_begin(struct running_load *running, const struct service *service, const char *listen,
               const char *what)
{
    *running = (struct running_load){.service = service};
    if (!what)
        return 0;
    return strcmp(what, LOAD_BUSY) == 0 ? begin_busy(running)
                                        : begin_hostile(running, listen, what);
}

static void await_rest(const struct service *service)
{
    uint64_t until_ns = clock_now_ns() + REST_NS, before_ns, now_ns;
    now_ns = service_lanes_cpu_ns(service) + service_coordinator_cpu_ns(service);
    do {
        nap(REST_LOOK_NS);
        before_ns = now_ns;
        now_ns = service_lanes_cpu_ns(service) + service_coordinator_cpu_ns(service);
    } while (now_ns - before_ns > REST_CPU_NS && clock_now_ns() < until_ns);
}

int load_end(struct running_load *running, uint64_t *ret_done)
{
    unsigned long long done = 0;
    char line[64];
    int r = 0;
    if (running->pid > 0) {
        kill(running->pid, *running->tenant ? SIGTERM : SIGKILL);
        process_reap(running->pid, clock_now_ns() + END_NS);
    }
    if (*running->tenant) {
        read_output(running, line, sizeof line);
        if (sscanf(line, "%*s %llu", &done) != 1)
            done = 0;
        r = operator_revoke_tenant(running->service, running->tenant);
    }
    if (running->pid > 0)
        await_rest(running->service);
    *running = (struct running_load){0};
    *ret_done = done;
    return r;
}
