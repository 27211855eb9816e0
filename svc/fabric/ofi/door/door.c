/* Owns the sockets whose connect request is incomplete, until libfabric accepts them. Never blocks,
 * never spins, and never consumes bytes that libfabric has to read (README, O8). */
#include "svc/fabric/ofi/door/door.h"

#include "svc/base/clock.h"
#include "svc/base/list.h"
#include "svc/base/log.h"
#include "svc/fabric/ofi/door/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* longest time for a connect request, the same as on the control port */
#define SILENCE_NS (5 * NS_PER_S)
/* Pause if descriptors run out, and between two lines in the log. */
#define PAUSE_NS (1 * NS_PER_S)
/* Minimum and maximum number of callers with an incomplete request. Between these bounds, the
 * callers may use an eighth of the process's descriptors. */
#define WAITING_MIN 16
#define WAITING_MAX 1024
#define BACKLOG 4096
/* Maximum number of events, and of new callers, that one call handles, so that open connections are
 * not delayed. */
#define LOOKS 8
#define ACCEPTS 4

/* Connect request of the provider. */
#define REQUEST_VERSION 3
#define REQUEST_TYPE 0
#define REQUEST_BYTES 32
#define REQUEST_ORDER_AT 24 /* 64 bits with value 1, which show the sender's byte order */
#define REQUEST_DATA_BYTES_MAX 256

struct stranger {
    struct list link;
    int fd;
    uint64_t deadline_ns;
};

struct ofi_door {
    int listen_fd, provider_fd, epoll_fd, timer_fd;
    struct list waiting, ready; /* oldest first */
    unsigned waiting_count, waiting_max;
    bool is_paused;
    uint64_t resume_ns;
    unsigned turned_away; /* number of refused callers since the last line in the log */
    const char *why;
    uint64_t told_ns;
};

int ofi_door_fd(const struct ofi_door *d) { return d->epoll_fd; }

int ofi_door_address(const struct ofi_door *d, struct sockaddr_storage *ret_address)
{
    socklen_t bytes = sizeof(*ret_address);
    return getsockname(d->listen_fd, (struct sockaddr *)ret_address, &bytes) < 0 ? -errno : 0;
}

/* --- refusals --------------------------------------------------------------------------------- */

static void door_tell(struct ofi_door *d, uint64_t now_ns)
{
    if (d->turned_away == 0 || (d->told_ns != 0 && now_ns < d->told_ns + PAUSE_NS))
        return;
    log_warn("transport=ofi turned_away=%u waiting=%u error=\"%s\"", d->turned_away,
             d->waiting_count, d->why);
    d->turned_away = 0;
    d->told_ns = now_ns;
}

static void door_note(struct ofi_door *d, const char *why)
{
    d->turned_away++;
    d->why = why;
    door_tell(d, clock_now_ns());
}

static void door_drop(struct ofi_door *d, struct stranger *s)
{
    list_remove(&s->link);
    d->waiting_count--;
    close(s->fd);
    free(s);
}

static bool door_drop_oldest(struct ofi_door *d, const char *why)
{
    struct list *oldest = list_first(&d->waiting);
    if (oldest == NULL)
        return false;
    door_drop(d, list_entry(oldest, struct stranger, link));
    door_note(d, why);
    return true;
}

/* --- requests -------------------------------------------------------------------------------- */

/* Returns the length of the request that begins with these bytes. Returns 0 for bytes that are no
 * request. Also returns 0 for a request in another byte order, because the peer's later messages
 * could not be checked (O12). */
static size_t door_request_bytes(const uint8_t *bytes, size_t count)
{
    uint64_t order = 1;
    if (count >= REQUEST_ORDER_AT + sizeof(order))
        memcpy(&order, bytes + REQUEST_ORDER_AT, sizeof(order));
    if (order != 1 || bytes[0] != REQUEST_VERSION || (count > 1 && bytes[1] != REQUEST_TYPE))
        return 0;
    size_t data_bytes = count > 3 ? (size_t)bytes[2] << 8 | bytes[3] : REQUEST_DATA_BYTES_MAX;
    return data_bytes > REQUEST_DATA_BYTES_MAX ? 0 : REQUEST_BYTES + data_bytes;
}

static void door_admit(struct ofi_door *d, struct stranger *s)
{
    const uint64_t one = 1;
    epoll_ctl(d->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    list_remove(&s->link);
    list_append(&d->ready, &s->link);
    d->waiting_count--;
    if (write(d->provider_fd, &one, sizeof(one)) < 0)
        log_warn("transport=ofi error=\"libfabric was not woken for a new connection; the "
                 "connection waits\"");
}

static void door_listen_to(struct ofi_door *d, struct stranger *s)
{
    uint8_t bytes[REQUEST_BYTES + REQUEST_DATA_BYTES_MAX];
    ssize_t count = recv(s->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    size_t wanted = count > 0 ? door_request_bytes(bytes, (size_t)count) : 0;
    if (wanted > 0 && (size_t)count >= wanted) {
        door_admit(d, s);
        return;
    }
    if (wanted > 0)
        return;
    door_drop(d, s);
    if (count > 0)
        door_note(d, "the bytes are no connect request of gradpool");
}

int ofi_door_take(struct ofi_door *d)
{
    uint64_t rung;
    struct list *first = list_first(&d->ready);
    if (read(d->provider_fd, &rung, sizeof(rung)) < 0 || first == NULL) {
        errno = EAGAIN;
        return -1;
    }
    struct stranger *s = list_entry(first, struct stranger, link);
    int fd = s->fd;
    list_remove(&s->link);
    free(s);
    return fd;
}

/* --- callers --------------------------------------------------------------------------------- */

static void door_watch_listener(struct ofi_door *d, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = &d->listen_fd};
    epoll_ctl(d->epoll_fd, EPOLL_CTL_MOD, d->listen_fd, &event);
}

/* Pauses listening. A caller that cannot be accepted stays in the kernel's queue, which keeps the
 * listener readable. */
static void door_pause_listening(struct ofi_door *d)
{
    d->is_paused = true;
    d->resume_ns = clock_now_ns() + PAUSE_NS;
    door_watch_listener(d, 0);
    door_note(d, "no descriptor or memory is left for a connection; trying again every second");
}

static void door_receive(struct ofi_door *d, int fd)
{
    struct stranger *s = malloc(sizeof(*s));
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = s};
    if (s == NULL || epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        free(s);
        close(fd);
        door_pause_listening(d);
        return;
    }
    if (d->waiting_count == d->waiting_max)
        door_drop_oldest(d, "too many callers wait at once, the oldest was dropped");
    *s = (struct stranger){.fd = fd, .deadline_ns = clock_now_ns() + SILENCE_NS};
    list_append(&d->waiting, &s->link);
    d->waiting_count++;
    door_listen_to(d, s);
}

static void door_take_callers(struct ofi_door *d)
{
    for (int i = 0; i < ACCEPTS && !d->is_paused; i++) {
        int fd = accept4(d->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            door_receive(d, fd);
        else if (errno == EAGAIN)
            return;
        else if ((errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) &&
                 !door_drop_oldest(d, "no descriptor is left, the oldest caller was dropped"))
            door_pause_listening(d);
    }
}

/* --- time ------------------------------------------------------------------------------------ */

static uint64_t door_earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns == 0 || (b_ns != 0 && b_ns < a_ns) ? b_ns : a_ns;
}

static void door_set_timer(struct ofi_door *d)
{
    struct list *oldest = list_first(&d->waiting);
    uint64_t when_ns = oldest ? list_entry(oldest, struct stranger, link)->deadline_ns : 0;
    if (d->is_paused)
        when_ns = door_earlier(when_ns, d->resume_ns);
    if (d->turned_away > 0)
        when_ns = door_earlier(when_ns, d->told_ns + PAUSE_NS);
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(when_ns / NS_PER_S),
                                           .tv_nsec = (long)(when_ns % NS_PER_S)}};
    timerfd_settime(d->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void door_on_time(struct ofi_door *d)
{
    uint64_t expirations, now_ns = clock_now_ns();
    if (read(d->timer_fd, &expirations, sizeof(expirations)) < 0)
        return;
    if (d->is_paused && now_ns >= d->resume_ns) {
        d->is_paused = false;
        door_watch_listener(d, EPOLLIN);
    }
    list_for_each_safe (node, &d->waiting) {
        if (list_entry(node, struct stranger, link)->deadline_ns > now_ns)
            break;
        door_drop_oldest(d, "no whole connect request came within 5 s");
    }
    door_tell(d, now_ns);
}

/* Requests are handled before new callers are accepted, because a new caller may displace the
 * oldest waiting caller. */
void ofi_door_look(struct ofi_door *d)
{
    struct epoll_event events[LOOKS];
    bool has_callers = false, is_time = false;
    int count = epoll_wait(d->epoll_fd, events, LOOKS, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == &d->listen_fd)
            has_callers = true;
        else if (events[i].data.ptr == &d->timer_fd)
            is_time = true;
        else
            door_listen_to(d, events[i].data.ptr);
    }
    if (is_time)
        door_on_time(d);
    if (has_callers)
        door_take_callers(d);
    if (count > 0)
        door_set_timer(d);
}

/* --- opening and closing --------------------------------------------------------------------- */

static int door_watch(struct ofi_door *d, int *fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};
    return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, *fd, &event) < 0 ? -errno : 0;
}

static unsigned door_waiting_max(void)
{
    struct rlimit limit;
    rlim_t eighth = getrlimit(RLIMIT_NOFILE, &limit) < 0 ? WAITING_MIN : limit.rlim_cur / 8;
    eighth = eighth > WAITING_MIN ? eighth : WAITING_MIN;
    return eighth < WAITING_MAX ? (unsigned)eighth : WAITING_MAX;
}

/* Duplicates the listening socket for this file, and replaces libfabric's descriptor by an
 * eventfd. */
static int door_change_places(struct ofi_door *d)
{
    d->listen_fd = fcntl(d->provider_fd, F_DUPFD_CLOEXEC, 0);
    if (d->listen_fd < 0 || fcntl(d->listen_fd, F_SETFL, O_NONBLOCK) < 0 ||
        listen(d->listen_fd, BACKLOG) < 0)
        return -errno;
    int bell = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
    if (bell < 0)
        return -errno;
    int error = dup3(bell, d->provider_fd, O_CLOEXEC) < 0 ? -errno : 0;
    close(bell);
    return error;
}

static int door_open(struct ofi_door *d)
{
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (d->epoll_fd < 0 || d->timer_fd < 0)
        return -errno;
    int error = door_change_places(d);
    if (error == 0)
        error = door_watch(d, &d->listen_fd);
    if (error == 0)
        error = door_watch(d, &d->timer_fd);
    return error < 0 ? error : ofi_guard_listener(d->provider_fd, d);
}

int ofi_door_open(int provider_fd, struct ofi_door **ret_door)
{
    struct ofi_door *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return -ENOMEM;
    d->provider_fd = provider_fd;
    d->listen_fd = d->epoll_fd = d->timer_fd = -1;
    d->waiting_max = door_waiting_max();
    list_init(&d->waiting);
    list_init(&d->ready);
    int error = door_open(d);
    if (error < 0) {
        ofi_door_close(d);
        return error;
    }
    *ret_door = d;
    return 0;
}

static void door_close_all(struct list *strangers)
{
    list_for_each_safe_entry (struct stranger, s, strangers, link) {
        close(s->fd);
        free(s);
    }
}

void ofi_door_close(struct ofi_door *d)
{
    if (d == NULL)
        return;
    const int fds[] = {d->listen_fd, d->epoll_fd, d->timer_fd};
    ofi_guard_end(d->provider_fd);
    door_close_all(&d->waiting);
    door_close_all(&d->ready);
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(d);
}

void ofi_door_abandon(struct ofi_door *d)
{
    if (d == NULL)
        return;
    close(d->provider_fd);
    ofi_door_close(d);
}
