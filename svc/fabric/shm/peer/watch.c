/* Helper thread of a worker's fabric. The thread never accesses a connection. It reports an event
 * of a socket, and the fabric's thread then checks the connections. */
#include "svc/fabric/shm/peer/watch.h"
#include "svc/base/system/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Maximum number of events of one epoll_wait(); the next call returns the others. */
#define EVENTS_MAX 8

struct shm_watch {
    int epoll_fd;
    int stop_fd;
    pthread_t thread;
    struct shm_bell *bell;
    _Atomic bool news;
};

static void *watch_main(void *argument)
{
    struct shm_watch *w = argument;

    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int n = epoll_wait(w->epoll_fd, events, EVENTS_MAX, -1);

        for (int i = 0; i < n; i++)
            if (events[i].data.fd == w->stop_fd)
                return NULL;
        if (n > 0) {
            atomic_store_explicit(&w->news, true, memory_order_release);
            shm_bell_ring(w->bell);
        }
    }
}

static void watch_close_all(struct shm_watch *w)
{
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
    if (w->stop_fd >= 0)
        close(w->stop_fd);
    w->epoll_fd = w->stop_fd = -1;
}

static int watch_open_all(struct shm_watch *w)
{
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll_fd < 0 || w->stop_fd < 0)
        return -errno;

    struct epoll_event stop = {.events = EPOLLIN, .data.fd = w->stop_fd};
    return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->stop_fd, &stop) < 0 ? -errno : 0;
}

int shm_watch_create(struct shm_bell *bell, struct shm_watch **ret_watch)
{
    struct shm_watch *w = calloc(1, sizeof *w);

    if (!w)
        return -ENOMEM;
    w->bell = bell;
    int error = watch_open_all(w) ?: thread_start(&w->thread, watch_main, w);
    if (error < 0) {
        watch_close_all(w);
        free(w);
        return error;
    }
    *ret_watch = w;
    return 0;
}

void shm_watch_destroy(struct shm_watch *w)
{
    if (!w)
        return;
    eventfd_write(w->stop_fd, 1);
    pthread_join(w->thread, NULL);
    watch_close_all(w);
    free(w);
}

int shm_watch_add(struct shm_watch *w, int fd)
{
    /* edge-triggered, because this thread does not read the sockets */
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};

    if (fd < 0)
        return 0;
    return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void shm_watch_remove(struct shm_watch *w, int fd)
{
    if (fd >= 0)
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

bool shm_watch_has_news(const struct shm_watch *w)
{
    return atomic_load_explicit(&w->news, memory_order_acquire);
}

bool shm_watch_take_news(struct shm_watch *w)
{
    return shm_watch_has_news(w) && atomic_exchange_explicit(&w->news, false, memory_order_acquire);
}

void shm_watch_abandon(struct shm_watch *w)
{
    if (w)
        watch_close_all(w);
}
