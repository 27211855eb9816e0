/* Descriptors and timers. Owns the epoll descriptor and the list of armed timers; never the
 * objects they are embedded in. A handler may free any source or timer, its own too. */
#include "svc/coordinator/loop.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

int loop_init(struct loop *loop)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return -errno;
    loop->epoll_fd = fd;
    list_init(&loop->timers);
    return 0;
}

void loop_fini(struct loop *loop) { close(loop->epoll_fd); }

static int control(struct loop *loop, int what, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(loop->epoll_fd, what, source->fd, &event) < 0 ? -errno : 0;
}

int loop_watch(struct loop *loop, struct source *source, uint32_t events)
{
    return control(loop, EPOLL_CTL_ADD, source, events);
}

int loop_rewatch(struct loop *loop, struct source *source, uint32_t events)
{
    return control(loop, EPOLL_CTL_MOD, source, events);
}

void loop_unwatch(struct loop *loop, struct source *source)
{
    if (source->fd >= 0)
        control(loop, EPOLL_CTL_DEL, source, 0);
}

void timer_init(struct timer *timer, void (*expired)(struct timer *timer))
{
    list_init(&timer->link);
    timer->expired = expired;
}

void timer_start(struct loop *loop, struct timer *timer, uint64_t deadline_ns)
{
    list_remove(&timer->link);
    timer->deadline_ns = deadline_ns;
    list_append(&loop->timers, &timer->link);
}

void timer_stop(struct timer *timer) { list_remove(&timer->link); }

static struct timer *earliest(struct loop *loop)
{
    struct timer *first = NULL;
    list_for_each (node, &loop->timers) {
        struct timer *timer = list_entry(node, struct timer, link);
        if (!first || timer->deadline_ns < first->deadline_ns)
            first = timer;
    }
    return first;
}

/* `now` is read once, so timers that handlers arm for "at once" wait for the next step. */
static void expire_timers(struct loop *loop)
{
    uint64_t now_ns = clock_now_ns();
    for (struct timer *due; (due = earliest(loop)) && due->deadline_ns < now_ns;) {
        timer_stop(due);
        due->expired(due);
    }
}

int loop_step(struct loop *loop, uint64_t deadline_ns)
{
    struct timer *next = earliest(loop);
    if (next && next->deadline_ns < deadline_ns)
        deadline_ns = next->deadline_ns;
    struct epoll_event event;
    int got = epoll_wait(loop->epoll_fd, &event, 1, clock_poll_ms(deadline_ns, clock_now_ns()));
    if (got < 0 && errno != EINTR)
        return -errno;
    if (got > 0) {
        struct source *source = event.data.ptr;
        source->ready(source, event.events);
    }
    expire_timers(loop);
    return 0;
}
