/* Connections of the web server: their number and their duration. Owns each socket until the socket
 * is passed to libmicrohttpd, and owns all deadlines. Never blocks. A slow reader uses one of
 * WEB_CONNECTIONS_MAX connections until its deadline, and delays no other reader (O7). */
#include "svc/ops/web/web.h"

#include "svc/base/clock.h"
#include "svc/base/list.h"
#include "svc/endpoint/endpoint.h"
#include "svc/ops/web/web_pages.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX 4

/* From version 0.9.77.07 on, MHD_add_connection() only queues the connection, unless the daemon was
 * started with this flag. Earlier versions do not have the flag and add the connection at once. */
#if MHD_VERSION >= 0x00097707
#define WEB_DAEMON_FLAGS (MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_NO_THREAD_SAFETY)
#else
#define WEB_DAEMON_FLAGS (MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET)
#endif

struct visitor {
    struct list link;
    int fd;
    uint64_t came_ns;
};

struct web {
    struct endpoint endpoint;
    char url[300];
    int listen_fd, epoll_fd;
    bool is_full; /* no more connections are possible, so the listening socket is not watched */
    struct MHD_Daemon *daemon;
    struct list visitors; /* open connections, oldest first */
    size_t visitors_count;
    struct visitor *arriving;
    struct web_pages *pages;
};

/* --- starting, ending --- */

static int read_address(const char *address, struct endpoint *ret_endpoint, struct err *err)
{
    const char *colon = strrchr(address, ':'), *bracket = strrchr(address, ']');
    bool has_port = colon && (!bracket || bracket < colon) && !strchr(address, '/');
    struct err ignored;
    if (!has_port || endpoint_parse(address, ret_endpoint, &ignored) < 0 || ret_endpoint->is_unix)
        return err_set(err, -EINVAL,
                       "--http '%.100s': expected ADDRESS:PORT, as in 127.0.0.1:7078 or "
                       "[::1]:7078",
                       address);
    return 0;
}

/* Called when a connection begins, inside MHD_add_connection(), and when a connection ends. */
static void notice(void *context, struct MHD_Connection *connection, void **visitor,
                   enum MHD_ConnectionNotificationCode what)
{
    struct web *web = context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *visitor = web->arriving;
        list_append(&web->visitors, &web->arriving->link);
        web->arriving = NULL;
        web->visitors_count++;
    } else {
        struct visitor *gone = *visitor;
        list_remove(&gone->link);
        free(gone);
        web->visitors_count--;
    }
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *body,
                              size_t *body_bytes, void **request)
{
    struct web *web = context;
    return web_pages_answer(web->pages, connection, method, path);
}

/* Starts the daemon. Its log messages are dropped, because they would contain input from unknown
 * peers. */
static int start_daemon(struct web *web)
{
    web->daemon =
        MHD_start_daemon(WEB_DAEMON_FLAGS, 0, NULL, NULL, answer, web, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)WEB_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)WEB_REQUEST_BYTES_MAX, MHD_OPTION_NOTIFY_CONNECTION, notice, web,
                         MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    return web->daemon ? 0 : -ENOMEM;
}

static int watch(struct web *web, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(web->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int start(struct web *web)
{
    web->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int error = web->epoll_fd < 0 ? -errno : start_daemon(web);
    if (error == 0)
        error = watch(web, MHD_get_daemon_info(web->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
    return error == 0 ? watch(web, web->listen_fd) : error;
}

static int listen_on(struct web *web, const char *address, struct err *err)
{
    struct err why;
    int error = read_address(address, &web->endpoint, err);
    if (error == 0 && (error = endpoint_listen(&web->endpoint, NULL, &web->listen_fd, &why)) < 0)
        err_set(err, error, "--http %s: %s", address, why.text);
    if (error == 0 && (error = start(web)) < 0)
        err_set(err, error, "--http %s: the web server cannot start: %s", address, err_text(error));
    if (error < 0)
        return error;
    endpoint_format(&web->endpoint, web->url, sizeof web->url);
    memmove(web->url + 4, strstr(web->url, "://"), strlen(strstr(web->url, "://")) + 1);
    memcpy(web->url, "http", 4);
    return 0;
}

int web_create(const char *address, const char *version, struct web **ret_web, struct err *err)
{
    struct web *web = calloc(1, sizeof *web);
    if (!web)
        return err_set(err, -ENOMEM,
                       "gradpool serve has no memory for --http; raise its memory limit");
    *web = (struct web){.listen_fd = -1, .epoll_fd = -1};
    list_init(&web->visitors);
    int error = web_pages_create(version, &web->pages);
    if (error < 0)
        err_set(err, error,
                "gradpool serve has no memory for the pages of --http; raise its memory limit");
    else if (address)
        error = listen_on(web, address, err);
    if (error < 0) {
        web_destroy(web);
        return error;
    }
    *ret_web = web;
    return 0;
}

void web_destroy(struct web *web)
{
    if (!web)
        return;
    if (web->daemon)
        MHD_stop_daemon(web->daemon);
    web_pages_destroy(web->pages);
    for (int i = 0, fds[] = {web->listen_fd, web->epoll_fd}; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(web);
}

const char *web_url(const struct web *web) { return web->url; }
bool web_is_loopback(const struct web *web) { return endpoint_is_loopback(&web->endpoint); }
int web_fd(const struct web *web) { return web->epoll_fd; }

void web_show(struct web *web, envelope *status, envelope *jobs)
{
    web_pages_show(web->pages, status, jobs);
}

int web_report(const struct web *web, bool is_json, char **ret_text, size_t *ret_bytes)
{
    return web_pages_report(web->pages, is_json, ret_text, ret_bytes);
}

/* --- connections --- */

/* Accepts a connection. Returns 1 if it was accepted, 0 if none waits, or a negative errno. */
static int accept_one(struct web *web)
{
    struct sockaddr_storage address;
    socklen_t address_bytes = sizeof address;
    int fd = accept4(web->listen_fd, (struct sockaddr *)&address, &address_bytes,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return errno == EAGAIN ? 0 : errno == ECONNABORTED || errno == EINTR ? 1 : -errno;
    struct visitor *visitor = calloc(1, sizeof *visitor);
    if (!visitor) {
        close(fd);
        return -ENOMEM;
    }
    *visitor = (struct visitor){.fd = fd, .came_ns = clock_now_ns()};
    list_init(&visitor->link);
    web->arriving = visitor;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){WEB_SEND_BYTES}, sizeof(int));
    /* The daemon owns the socket from here on, even after an error. */
    MHD_add_connection(web->daemon, fd, (struct sockaddr *)&address, address_bytes);
    free(web->arriving);
    web->arriving = NULL;
    return 1;
}

static uint64_t soonest(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Ends connections whose deadline has passed. Returns the next deadline. */
static uint64_t end_overdue(struct web *web, uint64_t now_ns)
{
    uint64_t most_ns = (web->is_full ? WEB_CROWDED_MS : WEB_DEADLINE_MS) * NS_PER_MS;
    list_for_each_entry (const struct visitor, visitor, &web->visitors, link) {
        if (visitor->came_ns + most_ns > now_ns)
            return visitor->came_ns + most_ns;
        /* the daemon then detects the end of the connection, and closes the socket */
        shutdown(visitor->fd, SHUT_RDWR);
    }
    return UINT64_MAX;
}

/* Sets whether epoll watches the listening socket. While no more connections are possible, new
 * connections wait in the queue of this socket. */
static void set_full(struct web *web, bool is_full)
{
    struct epoll_event event = {.events = is_full ? 0 : EPOLLIN};
    if (is_full != web->is_full)
        epoll_ctl(web->epoll_fd, EPOLL_CTL_MOD, web->listen_fd, &event);
    web->is_full = is_full;
}

/* Accepts connections until none waits, the maximum is reached, or an error occurs. Returns 0 or a
 * negative errno. */
static int accept_all(struct web *web)
{
    int came = 1;
    while (came == 1 && web->visitors_count < WEB_CONNECTIONS_MAX)
        came = accept_one(web);
    set_full(web, came != 0);
    return came;
}

uint64_t web_run(struct web *web)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;
    int came = accept_all(web);
    MHD_run(web->daemon);
    uint64_t now_ns = clock_now_ns(), deadline_ns = end_overdue(web, now_ns);
    if (came < 0)
        deadline_ns = soonest(deadline_ns, now_ns + WEB_CROWDED_MS * NS_PER_MS);
    else if (came == 1 && web->visitors_count < WEB_CONNECTIONS_MAX)
        deadline_ns = now_ns;
    if (MHD_get_timeout(web->daemon, &wait_ms) == MHD_YES)
        deadline_ns = soonest(deadline_ns, now_ns + wait_ms * NS_PER_MS);
    return deadline_ns;
}
