/* Starts and ends `gradpool serve`. Owns its processes and its folder. */
#include "bench/lib/own_service.h"

#include "bench/lib/folder.h"
#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_NS (120 * NS_PER_S) /* of a busy host; the end of the process is seen at once */
/* time for the coordinator to end; longer than its own time-out for its aggregators */
#define STOP_NS (20 * NS_PER_S)
#define ASK_AGAIN_NS (20 * NS_PER_MS)

extern char **environ;

struct words {
    char *at[32];
    size_t count;
};

/* Adds an option with its value. For NULL adds nothing, so that the service uses its default. */
static void add(struct words *w, const char *option, const char *value)
{
    if (!value)
        return;
    w->at[w->count++] = (char *)option;
    w->at[w->count++] = (char *)value;
}

static int spawn(struct service *s, const struct service_setting *setting)
{
    char state[PATH_MAX + 8];
    snprintf(state, sizeof state, "%s/state", s->folder);
    struct words words = {.at = {s->program, (char *)"serve"}, .count = 2};
    add(&words, "--state-dir", state);
    add(&words, "--listen", setting->listen ? setting->listen : "gradpool://127.0.0.1:0");
    add(&words, "--aggregators", setting->aggregators ? setting->aggregators : "1");
    add(&words, "--cores", setting->cores);
    add(&words, "--lanes-per-core", setting->lanes_per_core);
    add(&words, "--policy", setting->policy);
    add(&words, "--scale-hold", setting->scale_hold);
    add(&words, "--scale", setting->scale);
    add(&words, "--job-memory-max", setting->job_memory_max);
    add(&words, "--lane-memory-max", setting->lane_memory_max);
    add(&words, "--explore", setting->explore);
    add(&words, "--aggregator-timeout", setting->aggregator_timeout);
    add(&words, "--piece-max", setting->piece_max);
    add(&words, "--data-port", setting->data_port);
    add(&words, "--stop", setting->stop ? setting->stop : "jobs");
    pid_t pid = process_spawn(words.at, environ, s->log);
    if (pid < 0)
        return pid;
    s->coordinator = pid;
    return 0;
}

/* `gradpool status` succeeds if all lanes are up, `gradpool jobs` if the coordinator answers. */
static int is_up(struct service *s, const char *command)
{
    char *argv[] = {s->program, (char *)command, (char *)"--endpoint", s->endpoint, NULL};
    pid_t pid = process_spawn(argv, environ, "/dev/null");
    return pid > 0 && process_reap(pid, clock_now_ns() + START_NS) == 0;
}

bool service_has_ended(const struct service *s)
{
    siginfo_t end = {0};
    int r = waitid(P_PID, (id_t)s->coordinator, &end, WEXITED | WNOHANG | WNOWAIT);
    return r < 0 || end.si_pid == s->coordinator;
}

static int wait_until_up(struct service *s, const char *command)
{
    uint64_t deadline_ns = clock_now_ns() + START_NS;
    const struct timespec again = {0, ASK_AGAIN_NS};
    while (!is_up(s, command)) {
        if (clock_now_ns() > deadline_ns || service_has_ended(s))
            return -ETIMEDOUT;
        nanosleep(&again, NULL);
    }
    return 0;
}

static int find_aggregators(struct service *s)
{
    s->aggregators_count = process_children(s->coordinator, s->aggregators, SERVICE_PROCESSES_MAX);
    return s->aggregators_count ? 0 : -ESRCH;
}

static void show_log(const struct service *s)
{
    char line[512];
    FILE *log = fopen(s->log, "r");
    while (log && fgets(line, sizeof line, log))
        fputs(line, stderr);
    if (log)
        fclose(log);
}

int service_start(struct service *s)
{
    char core[16];
    snprintf(core, sizeof core, "%d", process_core(0));
    return service_start_as(s, &(struct service_setting){.cores = core, .lanes_per_core = "1"});
}

int service_start_as(struct service *s, const struct service_setting *setting)
{
    *s = (struct service){0};
    const char *program = setting->program ? setting->program : "gradpool";
    if (process_find_beside(program, s->program, sizeof s->program) < 0) {
        fprintf(stderr, "gradpool-bench: the program %s is not in the folder of gradpool-bench\n",
                program);
        return -ENOENT;
    }
    int r = folder_make(s->folder, sizeof s->folder);
    snprintf(s->log, sizeof s->log, "%s/serve.log", s->folder);
    snprintf(s->endpoint, sizeof s->endpoint, "unix:%s/state/control.sock", s->folder);
    if (r == 0)
        r = spawn(s, setting);
    if (r == 0)
        r = wait_until_up(s, "status");
    if (r == 0)
        r = find_aggregators(s);
    if (r == 0)
        return 0;
    fprintf(stderr, "gradpool-bench: the service did not start; its log:\n");
    show_log(s);
    service_stop(s);
    return r;
}

int service_start_again(struct service *s, const struct service_setting *setting)
{
    int r = spawn(s, setting);
    return r == 0 ? wait_until_up(s, "jobs") : r;
}

int service_end(struct service *s)
{
    kill(s->coordinator, SIGINT); /* SIGINT also ends the jobs */
    int status = process_reap(s->coordinator, clock_now_ns() + STOP_NS);
    s->coordinator = 0;
    return status;
}

int service_keep_log(const struct service *s, char *ret_path, size_t path_bytes)
{
    int needed = snprintf(ret_path, path_bytes, "%s.log", s->folder);
    if (needed < 0 || (size_t)needed >= path_bytes)
        return -ENAMETOOLONG;
    return rename(s->log, ret_path) < 0 ? -errno : 0;
}

void service_stop(struct service *s)
{
    if (s->coordinator > 0)
        service_end(s);
    folder_remove(s->folder);
    *s = (struct service){0};
}

uint64_t service_lanes_cpu_ns(const struct service *s)
{
    uint64_t total = 0;
    for (size_t i = 0; i < s->aggregators_count; i++)
        total += process_cpu_ns(s->aggregators[i]);
    return total;
}

uint64_t service_coordinator_cpu_ns(const struct service *s)
{
    return process_cpu_ns(s->coordinator);
}
