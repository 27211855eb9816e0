/* The lower bound: a simple server over plain TCP sockets. One thread reads a piece from every
 * worker, sums, and writes the result back. The server has no messages, handles no failures, and
 * sums one tensor at a time. Server and workers use the same cores as gradpool's lane and
 * workers. */
#include "bench/compare/seat.h"
#include "bench/compare/systems.h"
#include "bench/lib/host.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 << 10)
#define PIECES_AHEAD 2

struct server {
    uint32_t workers;
    int fds[CREW_WORKERS_MAX];
    uint64_t bytes;
    float *sum, *piece;
};

struct client {
    int fd;
    uint64_t bytes;
    char *gradient, *result;
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static int send_whole(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t r = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (r < 0)
            return -errno;
        done += (size_t)r;
    }
    return 0;
}

static int receive_whole(int fd, void *data, size_t bytes)
{
    ssize_t r = recv(fd, data, bytes, MSG_WAITALL);
    return r == (ssize_t)bytes ? 0 : r < 0 ? -errno : -ECONNRESET;
}

static void add(float *restrict sum, const float *restrict piece, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += piece[i];
}

static int serve_piece(const struct server *s, size_t bytes)
{
    int r = receive_whole(s->fds[0], s->sum, bytes);
    for (uint32_t w = 1; r == 0 && w < s->workers; w++) {
        r = receive_whole(s->fds[w], s->piece, bytes);
        add(s->sum, s->piece, bytes / sizeof(float));
    }
    for (uint32_t w = 0; r == 0 && w < s->workers; w++)
        r = send_whole(s->fds[w], s->sum, bytes);
    return r;
}

static int serve_round(void *context)
{
    const struct server *s = context;
    int r = 0;
    for (uint64_t done = 0; r == 0 && done < s->bytes; done += PIECE_BYTES)
        r = serve_piece(s, least(PIECE_BYTES, s->bytes - done));
    return r;
}

static int serve_size(void *context, uint64_t bytes, uint32_t tensors, float **ret_gradient,
                      float **ret_result)
{
    (void)tensors;
    struct server *s = context;
    s->bytes = bytes;
    *ret_gradient = *ret_result = NULL;
    return 0;
}

static int serve(const struct crew *crew, int listen_fd)
{
    static const struct seat_work verbs = {serve_size, serve_round, NULL};
    struct server s = {.workers = crew->workers};
    const struct seat seat = {crew->address, crew->workers, crew->workers};
    const int on = 1;
    process_bind(0);
    s.sum = malloc(PIECE_BYTES);
    s.piece = malloc(PIECE_BYTES);
    if (!s.sum || !s.piece)
        return -ENOMEM;
    for (uint32_t w = 0; w < s.workers; w++) {
        s.fds[w] = accept(listen_fd, NULL, NULL);
        if (s.fds[w] < 0)
            return -errno;
        setsockopt(s.fds[w], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    return seat_run(&seat, &verbs, &s);
}

/* Sends as much as the socket accepts without blocking. Worker and server would deadlock if both
 * blocked in send(). */
static int push(const struct client *c, uint64_t limit, uint64_t *sent)
{
    while (*sent < limit) {
        ssize_t r = send(c->fd, c->gradient + *sent, limit - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (r < 0)
            return errno == EAGAIN ? 0 : -errno;
        *sent += (uint64_t)r;
    }
    return 0;
}

static int await(const struct client *c)
{
    struct pollfd fd = {.fd = c->fd, .events = POLLIN | POLLOUT};
    return poll(&fd, 1, -1) < 0 ? -errno : 0;
}

static int push_pull(void *context)
{
    const struct client *c = context;
    uint64_t sent = 0, received = 0;
    int r = 0;
    while (r == 0 && received < c->bytes) {
        uint64_t piece_end = least((received / PIECE_BYTES + 1) * PIECE_BYTES, c->bytes);
        uint64_t limit = least(piece_end + (PIECES_AHEAD - 1) * PIECE_BYTES, c->bytes);
        r = push(c, limit, &sent);
        bool is_sent = sent == limit;
        if (r == 0 && !is_sent)
            r = await(c);
        ssize_t got = r < 0 ? 0
                            : recv(c->fd, c->result + received, piece_end - received,
                                   is_sent ? MSG_WAITALL : MSG_DONTWAIT);
        if (got > 0)
            received += (uint64_t)got;
        else if (r == 0 && (got == 0 || errno != EAGAIN))
            r = got == 0 ? -ECONNRESET : -errno;
    }
    return r;
}

/* the tensors of a group are adjacent in memory, and are sent as one stream */
static int resize(void *context, uint64_t bytes, uint32_t tensors, float **ret_gradient,
                  float **ret_result)
{
    (void)tensors;
    struct client *c = context;
    free(c->gradient);
    free(c->result);
    c->bytes = bytes;
    c->gradient = malloc(bytes);
    c->result = malloc(bytes);
    *ret_gradient = (float *)c->gradient;
    *ret_result = (float *)c->result;
    return c->gradient && c->result ? 0 : -ENOMEM;
}

static int work(const struct crew *crew, uint32_t rank, const struct sockaddr_in *server)
{
    static const struct seat_work verbs = {resize, push_pull, NULL};
    struct client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const struct seat seat = {crew->address, rank, crew->workers};
    const int on = 1;
    process_bind(rank + 1);
    if (c.fd < 0 || connect(c.fd, (const struct sockaddr *)server, sizeof *server) < 0)
        return -errno;
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return seat_run(&seat, &verbs, &c);
}

/* Runs one process and exits. The seat with the number `workers` is the server. */
static void sit(const struct crew *crew, uint32_t seat, int listen_fd,
                const struct sockaddr_in *server)
{
    int r = seat == crew->workers ? serve(crew, listen_fd) : work(crew, seat, server);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: sockets, seat %u: %s\n", seat, strerror(-r));
    _exit(r < 0 ? 1 : 0);
}

int sockets_start(struct crew *crew)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 || bind(fd, (struct sockaddr *)&at, bytes) < 0 ||
                    getsockname(fd, (struct sockaddr *)&at, &bytes) < 0 ||
                    listen(fd, CREW_WORKERS_MAX) < 0
                ? -errno
                : 0;
    for (uint32_t seat = 0; r == 0 && seat < crew->seats; seat++) {
        pid_t pid = process_fork(SIGKILL);
        if (pid == 0)
            sit(crew, seat, fd, &at);
        if (pid < 0)
            r = -errno;
        else
            crew_note(crew, pid);
    }
    if (fd >= 0)
        close(fd);
    return r;
}
