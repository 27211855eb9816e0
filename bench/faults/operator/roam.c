/* Moves tasks as an operator does. Owns the process of the running command. A failed command is no
 * fault, because a strike may have hit its process. */
#include "bench/faults/operator/roam.h"

#include "bench/faults/ends.h"
#include "bench/lib/host.h"
#include "bench/savings/look.h"
#include "svc/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define TASKS_MAX 64
#define ORDER_NS (30 * NS_PER_S)

extern char **environ;

static void take(struct roam *roam, int code)
{
    roam->pid = 0;
    roam->done += code == 0;
    if (ends_of_command_fit(code))
        return;
    fprintf(stderr, "# gradpool move ended with %d   <- a crash\n", code);
    roam->crashes++;
}

static bool is_under_way(struct roam *roam)
{
    siginfo_t end = {0};
    if (roam->pid <= 0)
        return false;
    if (waitid(P_PID, (id_t)roam->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0)
        return true;
    take(roam, process_reap(roam->pid, 0));
    return false;
}

static void order(struct roam *roam, const char *what, uint32_t lane)
{
    char number[16];
    char *argv[] = {(char *)roam->service->program,
                    (char *)"move",
                    (char *)what,
                    number,
                    (char *)"--endpoint",
                    (char *)roam->service->endpoint,
                    NULL};
    snprintf(number, sizeof number, "%u", lane);
    pid_t pid = process_spawn(argv, environ, "/dev/null");
    roam->pid = pid > 0 ? pid : 0;
    roam->asked += pid > 0;
}

void roam_begin(struct roam *roam, const char *job, uint32_t chance)
{
    uint32_t tasks[TASKS_MAX];
    char what[64];
    if (is_under_way(roam))
        return;
    struct look *look = calloc(1, sizeof *look);
    int count = look && look_at_lanes(roam->service, look) == 0
                    ? look_at_tasks(roam->service, job, tasks, TASKS_MAX)
                    : 0;
    if (count > 0) {
        if (chance % 2)
            snprintf(what, sizeof what, "%s", job);
        else
            snprintf(what, sizeof what, "%u", tasks[chance / 2 % (uint32_t)count]);
        order(roam, what, look->lanes[chance / 256 % look->lanes_count].lane);
    }
    free(look);
}

void roam_end(struct roam *roam)
{
    if (is_under_way(roam))
        take(roam, process_reap(roam->pid, clock_now_ns() + ORDER_NS));
}
