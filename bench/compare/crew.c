/* Sends requests to the processes of a system. Owns sockets and child processes. */
#include "bench/compare/crew.h"

#include "bench/compare/seat.h"
#include "bench/lib/folder.h"
#include "bench/lib/host.h"
#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/base/system/unique.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define START_NS (60 * NS_PER_S)
#define END_NS (10 * NS_PER_S)
#define ANSWER_S 120

static int complain(const struct crew *crew, const char *what)
{
    fprintf(stderr, "gradpool-bench: %s %s, %u workers: %s\n", crew->system->name,
            crew->system->transport, crew->workers, what);
    return -EPROTO;
}

static int listen_for_seats(struct crew *crew)
{
    static unsigned number;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char name[UNIQUE_BYTES];
    snprintf(crew->address, sizeof crew->address, "%s.%u",
             unique_name("gradpool-bench", name, sizeof name), ++number);
    size_t length = strlen(crew->address);
    memcpy(at.sun_path + 1, crew->address, length);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    crew->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (crew->listen_fd < 0 || bind(crew->listen_fd, (struct sockaddr *)&at, bytes) < 0 ||
        listen(crew->listen_fd, CREW_SEATS_MAX) < 0)
        return -errno;
    return 0;
}

void crew_note(struct crew *crew, pid_t child) { crew->children[crew->children_count++] = child; }

int crew_start(struct crew *crew, const struct system *system, const struct service *service,
               uint32_t workers)
{
    *crew = (struct crew){.system = system, .service = service, .workers = workers};
    crew->seats = workers + system->has_server_seat;
    crew->next_round = 1;
    int r = listen_for_seats(crew);
    if (r < 0)
        return complain(crew, err_text(r));
    snprintf(crew->job, sizeof crew->job, "%s", crew->address);
    return system->start(crew);
}

/* Waits for a connection. -ECHILD: a process of the crew has ended. */
static int await_knock(const struct crew *crew, uint64_t deadline_ns)
{
    struct pollfd fds[1 + CREW_SEATS_MAX] = {{.fd = crew->listen_fd, .events = POLLIN}};
    for (size_t i = 0; i < crew->children_count; i++)
        fds[i + 1] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, crew->children[i], 0),
                                     .events = POLLIN};
    int r = poll(fds, 1 + crew->children_count, clock_poll_ms(deadline_ns, clock_now_ns()));
    int error = r > 0 ? 0 : r < 0 ? -errno : -ETIMEDOUT;
    if (r > 0 && !(fds[0].revents & POLLIN))
        error = -ECHILD;
    for (size_t i = 0; i < crew->children_count; i++)
        if (fds[i + 1].fd >= 0)
            close(fds[i + 1].fd);
    return error;
}

static int take_seat(struct crew *crew)
{
    const struct timeval limit = {.tv_sec = ANSWER_S};
    char line[32];
    unsigned rank;
    int fd = accept4(crew->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    FILE *in = fdopen(fd, "r");
    if (!in || !fgets(line, sizeof line, in) || sscanf(line, "seat %u", &rank) != 1 ||
        rank >= crew->seats || crew->in[rank]) {
        in ? fclose(in) : close(fd);
        return -EPROTO;
    }
    crew->in[rank] = in;
    return 0;
}

int crew_await(struct crew *crew)
{
    uint64_t deadline_ns = clock_now_ns() + START_NS;
    for (uint32_t seated = 0; seated < crew->seats; seated++) {
        int r = await_knock(crew, deadline_ns);
        if (r == 0)
            r = take_seat(crew);
        if (r < 0) {
            complain(crew, r == -ECHILD ? "a process ended before it was ready" : err_text(r));
            return r;
        }
    }
    crew->is_up = true;
    return 0;
}

static int tell(const struct crew *crew, uint32_t seat, const char *line)
{
    size_t bytes = strlen(line);
    if (send(fileno(crew->in[seat]), line, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        return complain(crew, "a process is gone");
    return 0;
}

static int tell_all(const struct crew *crew, const char *line)
{
    int r = 0;
    for (uint32_t seat = 0; r == 0 && seat < crew->seats; seat++)
        r = tell(crew, seat, line);
    return r;
}

static int hear(struct crew *crew, uint32_t seat, const char *word)
{
    size_t length = strlen(word);
    ssize_t bytes = getline(&crew->line, &crew->line_bytes, crew->in[seat]);
    if (bytes < 0)
        return complain(crew, "a process has ended or does not answer");
    return strncmp(crew->line, word, length) == 0 ? 0 : complain(crew, crew->line);
}

static int hear_all(struct crew *crew, const char *word)
{
    int r = 0;
    for (uint32_t seat = 0; r == 0 && seat < crew->seats; seat++)
        r = hear(crew, seat, word);
    return r;
}

int crew_resize(struct crew *crew, uint64_t bytes, uint32_t tensors)
{
    char line[64];
    snprintf(line, sizeof line, "size %llu %u\n", (unsigned long long)bytes, tensors);
    int r = tell_all(crew, line);
    return r < 0 ? r : hear_all(crew, "ok");
}

static int prepare(struct crew *crew, const struct segment *segment)
{
    char line[64];
    int r = 0;
    for (uint32_t seat = 0; r == 0 && seat < crew->seats; seat++) {
        bool pauses = segment->pause_us && seat < crew->workers;
        snprintf(line, sizeof line, "run %u %u %u\n", segment->rounds, crew->next_round,
                 pauses ? segment->pause_us[seat] : 0);
        r = tell(crew, seat, line);
    }
    crew->next_round += segment->rounds;
    return r < 0 ? r : hear_all(crew, "ready");
}

/* Reads the line "done CPU ELAPSED ROUND...". The round times of a server are ignored. */
static int take_figures(struct crew *crew, uint32_t seat, struct segment *segment)
{
    int r = hear(crew, seat, "done ");
    if (r < 0)
        return r;
    char *at = crew->line + strlen("done ");
    uint64_t cpu_ns = strtoull(at, &at, 10), elapsed_ns = strtoull(at, &at, 10);
    if (seat >= crew->workers) {
        segment->server_cpu_ns += cpu_ns;
        return 0;
    }
    segment->worker_cpu_ns += cpu_ns;
    if (elapsed_ns > segment->elapsed_ns)
        segment->elapsed_ns = elapsed_ns;
    for (uint32_t i = 0; i < segment->rounds; i++)
        segment->round_ns[(size_t)seat * segment->rounds + i] = strtoull(at, &at, 10);
    return 0;
}

static int check(struct crew *crew, struct segment *segment)
{
    int r = tell_all(crew, "check\n");
    for (uint32_t seat = 0; r == 0 && seat < crew->seats; seat++) {
        r = hear(crew, seat, "wrong ");
        if (r == 0)
            segment->wrong += strtoull(crew->line + strlen("wrong "), NULL, 10);
    }
    return r;
}

static uint64_t service_cpu_ns(const struct crew *crew)
{
    if (!crew->system->uses_service)
        return 0;
    return service_lanes_cpu_ns(crew->service) + service_coordinator_cpu_ns(crew->service);
}

int crew_run(struct crew *crew, struct segment *segment)
{
    segment->worker_cpu_ns = segment->server_cpu_ns = segment->elapsed_ns = segment->wrong = 0;
    int r = prepare(crew, segment);
    uint64_t service_ns = service_cpu_ns(crew);
    if (r == 0)
        r = tell_all(crew, "go\n");
    for (uint32_t seat = 0; r == 0 && seat < crew->seats; seat++)
        r = take_figures(crew, seat, segment);
    segment->server_cpu_ns += service_cpu_ns(crew) - service_ns;
    return r < 0 ? r : check(crew, segment);
}

uint32_t crew_rounds_max(const struct crew *crew)
{
    uint32_t rounds = SEAT_ROUNDS_MAX;
    if (crew->system->is_in_place && crew->workers > 1)
        rounds = 120 / (32 - (uint32_t)__builtin_clz(crew->workers - 1));
    return rounds;
}

uint64_t crew_children_cpu_ns(const struct crew *crew)
{
    uint64_t total = 0;
    for (size_t i = 0; i < crew->children_count; i++)
        total += process_cpu_ns(crew->children[i]);
    return total;
}

void crew_end(struct crew *crew)
{
    for (uint32_t seat = 0; seat < crew->seats; seat++)
        if (crew->in[seat]) {
            (void)send(fileno(crew->in[seat]), "quit\n", 5, MSG_NOSIGNAL);
            fclose(crew->in[seat]);
        }
    uint64_t deadline_ns = clock_now_ns() + END_NS;
    for (size_t i = 0; i < crew->children_count; i++) {
        if (!crew->is_up)
            kill(crew->children[i], SIGTERM);
        process_reap(crew->children[i], deadline_ns);
    }
    if (crew->listen_fd > 0)
        close(crew->listen_fd);
    folder_remove(crew->folder);
    free(crew->line);
    *crew = (struct crew){0};
}
