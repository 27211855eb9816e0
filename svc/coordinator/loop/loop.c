/* Descriptors, timers and turns. Owns the epoll descriptor and the list of running timers, but not
 * the objects that contain sources and timers. A handler may free any source or timer, including
 * its own. */
#include "svc/coordinator/loop/loop.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Maximum number of events between two turns. The number is large, because an event takes little
 * time, and a connection waits as long as its event waits. */
#define EVENTS_A_STEP 64

int loop_init(struct loop *loop)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return -errno;
    loop->epoll_fd = fd;
    list_init(&loop->timers);
    loop->first = NULL;
    turns_init(&loop->turns);
    return 0;
}

static int control(struct loop *loop, int what, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(loop->epoll_fd, what, source->fd, &event) < 0 ? -errno : 0;
}

int loop_watch(struct loop *loop, struct source *source, uint32_t events)
{
    return control(loop, EPOLL_CTL_ADD, source, events);
}

int loop_rewatch_once(struct loop *loop, struct source *source, uint32_t events)
{
    return control(loop, EPOLL_CTL_MOD, source, events | EPOLLONESHOT);
}

void loop_unwatch(struct loop *loop, struct source *source)
{
    if (source->fd >= 0)
        control(loop, EPOLL_CTL_DEL, source, 0);
}

void timer_init(struct timer *timer, void (*expired)(struct timer *timer))
{
    list_init(&timer->link);
    timer->loop = NULL;
    timer->expired = expired;
}

void timer_start(struct loop *loop, struct timer *timer, uint64_t deadline_ns)
{
    timer_stop(timer);
    timer->loop = loop;
    timer->deadline_ns = deadline_ns;
    list_append(&loop->timers, &timer->link);
    if (loop->first && deadline_ns < loop->first->deadline_ns)
        loop->first = timer;
}

void timer_stop(struct timer *timer)
{
    list_remove(&timer->link);
    if (timer->loop && timer->loop->first == timer)
        timer->loop->first = NULL;
}

static struct timer *earliest(struct loop *loop)
{
    if (loop->first)
        return loop->first;
    list_for_each_entry (struct timer, timer, &loop->timers, link)
        if (!loop->first || timer->deadline_ns < loop->first->deadline_ns)
            loop->first = timer;
    return loop->first;
}

/* Handles due timers. The time is read once at the beginning, so a timer with delay 0 that a
 * handler starts fires in the next step. */
static void expire_timers(struct loop *loop)
{
    uint64_t now_ns = clock_now_ns();
    for (struct timer *due; (due = earliest(loop)) && due->deadline_ns < now_ns;) {
        timer_stop(due);
        due->expired(due);
    }
}

static uint64_t next_ns(struct loop *loop, uint64_t deadline_ns, uint64_t now_ns)
{
    const struct timer *timer = earliest(loop);
    uint64_t turn_ns = turns_due_ns(&loop->turns, now_ns);
    if (timer && timer->deadline_ns < deadline_ns)
        deadline_ns = timer->deadline_ns;
    return turn_ns < deadline_ns ? turn_ns : deadline_ns;
}

int loop_step(struct loop *loop, uint64_t deadline_ns)
{
    uint64_t now_ns = clock_now_ns();
    int wait_ms = clock_poll_ms(next_ns(loop, deadline_ns, now_ns), now_ns);
    for (int i = 0; i < EVENTS_A_STEP; i++) {
        struct epoll_event event;
        int got = epoll_wait(loop->epoll_fd, &event, 1, i == 0 ? wait_ms : 0);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got <= 0)
            break;
        struct source *source = event.data.ptr;
        source->ready(source, event.events);
    }
    expire_timers(loop);
    turns_take(&loop->turns, clock_now_ns());
    return 0;
}
