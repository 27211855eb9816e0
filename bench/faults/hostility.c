/* Starts and ends the process of the hostile tenant. Owns the process, the tenant's key and the
 * list of attacks. An attack must never excuse an error of another tenant's job. */
#include "bench/faults/hostility.h"

#include "bench/lib/host.h"
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORTS 16384 /* number of ports to try, all below the ports that the kernel assigns */
/* the kernel's usual first port; used if no lower port is free */
#define PORT_FIRST 49152
#define KINDS_MAX 32
#define TENANT_NS (20 * NS_PER_S)

extern char **environ;

/* --- a port that lasts --- */

static uint32_t read_first_port_of_kernel(void)
{
    unsigned first = 0;
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (range && fscanf(range, "%u", &first) != 1)
        first = 0;
    if (range)
        fclose(range);
    return first > PORTS + 1024 ? first : PORT_FIRST;
}

static bool is_free(uint32_t port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
}

void hostile_find_listen(char *ret_listen)
{
    uint32_t last = read_first_port_of_kernel() - 1, at = (uint32_t)getpid() % PORTS, tried = 0;
    while (tried++ < PORTS && !is_free(last - at))
        at = (at + 1) % PORTS;
    snprintf(ret_listen, HOSTILE_LISTEN_BYTES, "gradpool://127.0.0.1:%u", last - at);
}

/* --- the process --- */

static void path_of(const struct hostile *h, const char *what, char *ret_path, size_t path_bytes)
{
    snprintf(ret_path, path_bytes, "%s/hostile-%s", h->service->folder, what);
}

static int make_tenant(const struct hostile *h, const char *key)
{
    char state[PATH_MAX + 8], errors[PATH_MAX + 64];
    char *argv[] = {(char *)h->service->program,
                    (char *)"tenant",
                    (char *)"add",
                    (char *)"hostile",
                    (char *)"--state-dir",
                    state,
                    NULL};
    snprintf(state, sizeof state, "%s/state", h->service->folder);
    path_of(h, "errors", errors, sizeof errors);
    pid_t pid = process_spawn_apart(argv, environ, key, errors);
    if (pid > 0 && process_reap(pid, clock_now_ns() + TENANT_NS) == 0)
        return 0;
    fprintf(stderr, "gradpool-bench: cannot make a tenant; see %s\n", errors);
    return -EIO;
}

int hostile_begin(struct hostile *h, const char *listen, uint64_t seed,
                  const struct hostile_pace *pace)
{
    char program[PATH_MAX], key[PATH_MAX + 64], output[PATH_MAX + 64], number[24], slot[24],
        rest[24];
    char *argv[] = {program, (char *)listen, number, slot, rest, NULL};
    path_of(h, "key", key, sizeof key);
    path_of(h, "output", output, sizeof output);
    snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
    snprintf(slot, sizeof slot, "%llu", (unsigned long long)pace->slot_ms);
    snprintf(rest, sizeof rest, "%llu", (unsigned long long)pace->rest_ms);
    if (process_find_beside("gradpool-bench-hostile", program, sizeof program) < 0) {
        fprintf(
            stderr,
            "# no hostile tenant: gradpool-bench-hostile is not in the folder of this program\n");
        return 0;
    }
    int r = make_tenant(h, key);
    if (r < 0)
        return r;
    setenv("GRADPOOL_KEY_FILE", key, 1);
    pid_t pid = process_spawn_apart(argv, environ, output, NULL);
    unsetenv("GRADPOOL_KEY_FILE"); /* workers of the bench must not use the hostile tenant's key */
    h->pid = pid > 0 ? pid : 0;
    return pid < 0 ? pid : 0;
}

static void count(struct hostile *h)
{
    char path[PATH_MAX + 64], name[32], kinds[KINDS_MAX][32];
    unsigned long long done;
    path_of(h, "output", path, sizeof path);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%31s %llu", name, &done) == 2) {
        size_t i = 0;
        fprintf(stderr, "# hostile tenant: %s, %llu done\n", name, done);
        h->attacks++;
        while (i < h->kinds && strcmp(kinds[i], name) != 0)
            i++;
        if (done > 0 && i == h->kinds && i < KINDS_MAX)
            snprintf(kinds[h->kinds++], sizeof kinds[0], "%s", name);
    }
    if (file)
        fclose(file);
}

void hostile_end(struct hostile *h)
{
    siginfo_t end = {0};
    if (h->pid <= 0)
        return;
    if (waitid(P_PID, (id_t)h->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        end.si_pid == h->pid) {
        fprintf(stderr, "# the hostile tenant has ended by itself   <- a crash\n");
        h->crashes++;
    }
    kill(h->pid, SIGKILL);
    process_reap(h->pid, clock_now_ns() + NS_PER_S);
    h->pid = 0;
    count(h);
}
