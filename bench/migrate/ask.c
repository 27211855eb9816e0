/* Runs commands of `gradpool` for the measurements of `migrate`. Owns the running process. */
#include "bench/migrate/ask.h"

#include "bench/lib/host.h"
#include "bench/savings/look.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define JOIN_NS (20 * NS_PER_S)
#define COMMAND_NS (120 * NS_PER_S)

extern char **environ;

static int run(const struct service *service, char **argv)
{
    pid_t pid = process_spawn(argv, environ, service->log);
    int code = pid < 0 ? pid : process_reap(pid, clock_now_ns() + COMMAND_NS);
    if (code != 0)
        fprintf(stderr, "gradpool-bench: gradpool %s failed: exit code %d; see %s\n", argv[1], code,
                service->log);
    return code == 0 ? 0 : -EIO;
}

int ask_service(const struct service *service, const char *a, const char *b, const char *c)
{
    char *argv[8] = {(char *)service->program, (char *)a};
    size_t count = 2;
    if (b)
        argv[count++] = (char *)b;
    if (c)
        argv[count++] = (char *)c;
    argv[count++] = (char *)"--endpoint";
    argv[count++] = (char *)service->endpoint;
    return run(service, argv);
}

int ask_drain(const struct service *service, uint32_t lane, bool undoes)
{
    char number[16];
    char *argv[] = {(char *)service->program,
                    (char *)"drain",
                    (char *)"lane",
                    number,
                    (char *)"--endpoint",
                    (char *)service->endpoint,
                    undoes ? (char *)"--undo" : NULL,
                    NULL};
    snprintf(number, sizeof number, "%u", lane);
    return run(service, argv);
}

/* Waits until the second aggregator has joined, because the start of the service does not wait
 * for it. */
int ask_lanes(const struct service *service, uint32_t ret_lanes[2])
{
    struct look look = {0};
    const struct timespec again = {0, 20 * NS_PER_MS};
    uint64_t deadline_ns = clock_now_ns() + JOIN_NS;
    int r = look_at_lanes(service, &look);
    while (r == 0 && look.lanes_count < 2 && clock_now_ns() < deadline_ns) {
        nanosleep(&again, NULL);
        r = look_at_lanes(service, &look);
    }
    if (r == 0 && look.lanes_count < 2) {
        fprintf(stderr, "gradpool-bench: the second aggregator has not joined\n");
        r = -ETIMEDOUT;
    }
    for (size_t i = 0; r == 0 && i < 2; i++)
        ret_lanes[i] = look.lanes[i].lane;
    return r;
}
