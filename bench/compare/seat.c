/* Executes the requests of the conductor. Owns the socket and the round times; the system owns the
 * memory of gradients and results. */
#include "bench/compare/seat.h"

#include "bench/compare/pattern.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct sitting {
    const struct seat *seat;
    const struct seat_work *work;
    void *context;
    FILE *in, *out;
    float *gradient, *result;
    uint64_t elements;
    uint32_t last_round;
    uint64_t round_ns[SEAT_ROUNDS_MAX];
};

static int say(struct sitting *s, const char *text)
{
    return fputs(text, s->out) == EOF || fflush(s->out) == EOF ? -EIO : 0;
}

static int connect_to(const char *address)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = strnlen(address, sizeof to.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(to.sun_path + 1, address, length);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, bytes) == 0)
        return fd;
    int error = errno;
    if (fd >= 0)
        close(fd);
    return -error;
}

static int resize(struct sitting *s, const char *line)
{
    unsigned long long bytes;
    unsigned tensors;
    if (sscanf(line, "size %llu %u", &bytes, &tensors) != 2 || tensors == 0)
        return -EPROTO;
    int r = s->work->resize(s->context, bytes, tensors, &s->gradient, &s->result);
    s->elements = bytes / sizeof(float);
    if (r == 0 && s->gradient)
        pattern_fill(s->gradient, s->elements, s->seat->rank);
    return r < 0 ? r : say(s, "ok\n");
}

static void pause_us(uint32_t us)
{
    struct timespec nap = {us / 1000000, (long)(us % 1000000) * 1000};
    if (us)
        nanosleep(&nap, NULL);
}

static int run_rounds(struct sitting *s, uint32_t rounds, uint32_t first, uint32_t nap_us)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < rounds; i++) {
        pause_us(nap_us);
        if (s->gradient)
            pattern_stamp(s->gradient, s->elements, s->seat->rank, first + i);
        uint64_t start_ns = clock_now_ns();
        r = s->work->round(s->context);
        s->round_ns[i] = clock_now_ns() - start_ns;
    }
    s->last_round = first + rounds - 1;
    return r;
}

static int tell_done(struct sitting *s, uint64_t cpu_ns, uint64_t elapsed_ns, uint32_t rounds)
{
    fprintf(s->out, "done %llu %llu", (unsigned long long)cpu_ns, (unsigned long long)elapsed_ns);
    for (uint32_t i = 0; i < rounds; i++)
        fprintf(s->out, " %llu", (unsigned long long)s->round_ns[i]);
    return say(s, "\n");
}

static int run(struct sitting *s, const char *line)
{
    unsigned rounds, first, nap_us;
    char go[16];
    if (sscanf(line, "run %u %u %u", &rounds, &first, &nap_us) != 3 || rounds > SEAT_ROUNDS_MAX)
        return -EPROTO;
    if (say(s, "ready\n") < 0 || !fgets(go, sizeof go, s->in))
        return -EPIPE;
    uint64_t start_ns = clock_now_ns(), cpu_ns = clock_process_cpu_ns();
    int r = run_rounds(s, rounds, first, nap_us);
    cpu_ns = clock_process_cpu_ns() - cpu_ns;
    uint64_t elapsed_ns = clock_now_ns() - start_ns;
    if (r == 0 && s->work->settle)
        r = s->work->settle(s->context);
    return r < 0 ? r : tell_done(s, cpu_ns, elapsed_ns, rounds);
}

static int check(struct sitting *s)
{
    uint64_t wrong =
        s->result ? pattern_count_wrong(s->result, s->elements, s->seat->workers, s->last_round)
                  : 0;
    fprintf(s->out, "wrong %llu", (unsigned long long)wrong);
    return say(s, "\n");
}

static int obey(struct sitting *s, const char *line)
{
    if (strncmp(line, "size ", 5) == 0)
        return resize(s, line);
    if (strncmp(line, "run ", 4) == 0)
        return run(s, line);
    return strcmp(line, "check\n") == 0 ? check(s) : -EPROTO;
}

static int sit(struct sitting *s)
{
    char line[64];
    int r = fprintf(s->out, "seat %u", s->seat->rank) < 0 ? -EIO : say(s, "\n");
    while (r == 0 && fgets(line, sizeof line, s->in) && strcmp(line, "quit\n") != 0)
        r = obey(s, line);
    return r;
}

int seat_run(const struct seat *seat, const struct seat_work *work, void *context)
{
    struct sitting *s = calloc(1, sizeof *s);
    int fd = s ? connect_to(seat->address) : -ENOMEM;
    if (fd < 0) {
        free(s);
        return fd;
    }
    *s = (struct sitting){.seat = seat, .work = work, .context = context};
    s->in = fdopen(fd, "r");
    int copy = dup(fd);
    s->out = copy >= 0 ? fdopen(copy, "w") : NULL;
    int r = s->in && s->out ? sit(s) : -ENOMEM;
    if (s->out)
        fclose(s->out);
    if (s->in)
        fclose(s->in);
    free(s);
    return r;
}
