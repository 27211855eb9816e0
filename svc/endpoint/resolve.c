/* Finds the addresses of names before a deadline. The C library's lookup has no deadline, so a
 * separate thread runs the lookup for a request. A caller whose deadline has passed returns, and
 * the thread frees the request when the lookup ends. The thread never uses memory of the caller
 * (svc/channel, H11). */
#include "svc/base/system/thread.h"
#include "svc/endpoint/endpoint.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define URL_BYTES (sizeof(((struct endpoint *)0)->host) + 32)

struct lookup {
    pthread_t thread;
    char host[sizeof(((struct endpoint *)0)->host)];
    char port[8];
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t over;
    bool is_over, is_given_up;
    int result; /* result of getaddrinfo() */
    int error;  /* errno if the result is EAI_SYSTEM */
    struct addrinfo *list;
};

/* --- the request ----------------------------------------------------------------------------- */

static struct lookup *lookup_create(const struct endpoint *e)
{
    struct lookup *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return NULL;
    thread_condition_init(&l->over);
    pthread_mutex_init(&l->lock, NULL);
    snprintf(l->host, sizeof(l->host), "%s", e->host);
    snprintf(l->port, sizeof(l->port), "%u", e->port);
    return l;
}

static void lookup_free(struct lookup *l)
{
    if (l->list != NULL)
        freeaddrinfo(l->list);
    pthread_cond_destroy(&l->over);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static int lookup_ask(const struct lookup *l, int flags, struct addrinfo **ret_list)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    return getaddrinfo(l->host, l->port, &hints, ret_list);
}

static void *lookup_main(void *context)
{
    struct lookup *l = context;
    struct addrinfo *list = NULL;
    int result = lookup_ask(l, 0, &list);
    int error = errno;
    pthread_mutex_lock(&l->lock);
    l->result = result;
    l->error = error;
    l->list = result == 0 ? list : NULL;
    l->is_over = true;
    bool is_given_up = l->is_given_up;
    pthread_cond_signal(&l->over);
    pthread_mutex_unlock(&l->lock);
    if (is_given_up)
        lookup_free(l);
    return NULL;
}

/* Waits for the lookup. Returns false if the deadline has passed. */
static bool lookup_wait(struct lookup *l, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    pthread_mutex_lock(&l->lock);
    while (!l->is_over && clock_now_ns() < deadline_ns)
        pthread_cond_timedwait(&l->over, &l->lock, &until);
    bool is_over = l->is_over;
    pthread_mutex_unlock(&l->lock);
    return is_over;
}

/* Ends the use of a request by its caller. If the lookup still runs, its thread owns the request
 * from now on; otherwise the request is freed. */
static void lookup_end(struct lookup *l)
{
    pthread_mutex_lock(&l->lock);
    bool is_over = l->is_over;
    l->is_given_up = !is_over;
    pthread_t thread = l->thread;
    pthread_mutex_unlock(&l->lock);
    if (!is_over) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    lookup_free(l);
}

/* --- the answer ------------------------------------------------------------------------------ */

static void take_list(const struct addrinfo *list, struct endpoint_addresses *ret_addresses)
{
    struct endpoint_addresses found = {0};
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
        if (found.count == ENDPOINT_ADDRESSES_MAX)
            break;
        struct endpoint_address *a = &found.list[found.count++];
        a->bytes = i->ai_addrlen;
        memcpy(&a->socket, i->ai_addr, i->ai_addrlen);
    }
    *ret_addresses = found;
}

static int lookup_finish(struct lookup *l, const struct endpoint *e,
                         struct endpoint_addresses *ret_addresses, struct err *err)
{
    char url[URL_BYTES];
    if (l->result == 0) {
        take_list(l->list, ret_addresses);
        return 0;
    }
    return err_set(err, -ENOENT,
                   "%s: this host name is unknown (%s); check its spelling, or give an address",
                   endpoint_format(e, url, sizeof(url)),
                   l->result == EAI_SYSTEM ? err_text(-l->error) : gai_strerror(l->result));
}

static int lookup_time_error(const struct endpoint *e, struct err *err)
{
    char url[URL_BYTES];
    return err_set(err, -ETIMEDOUT,
                   "%s: no name server answered for '%s' within the deadline; give an "
                   "address in place of the name, or see /etc/resolv.conf",
                   endpoint_format(e, url, sizeof(url)), e->host);
}

/* Runs the lookup. Owns `l`. */
static int lookup_run(struct lookup *l, const struct endpoint *e, uint64_t deadline_ns,
                      struct endpoint_addresses *ret_addresses, struct err *err)
{
    int error = thread_start(&l->thread, lookup_main, l);
    if (error < 0) {
        lookup_free(l);
        return err_set(err, error,
                       "this process cannot start a thread to look up host name '%s': %s", e->host,
                       err_text(error));
    }
    if (lookup_wait(l, deadline_ns))
        error = lookup_finish(l, e, ret_addresses, err);
    else
        error = lookup_time_error(e, err);
    lookup_end(l);
    return error;
}

static void resolve_unix(const struct endpoint *e, struct endpoint_addresses *ret_addresses)
{
    *ret_addresses = (struct endpoint_addresses){.count = 1};
    ret_addresses->list[0].bytes = sizeof(struct sockaddr_un);
    struct sockaddr_un *path = (struct sockaddr_un *)&ret_addresses->list[0].socket;
    path->sun_family = AF_UNIX;
    memcpy(path->sun_path, e->host, strnlen(e->host, sizeof(path->sun_path) - 1));
}

int endpoint_resolve(const struct endpoint *e, uint64_t deadline_ns,
                     struct endpoint_addresses *ret_addresses, struct err *err)
{
    if (e->is_unix) {
        resolve_unix(e, ret_addresses);
        return 0;
    }
    struct lookup *l = lookup_create(e);
    if (l == NULL)
        return err_set(err, -ENOMEM, "this process has no memory to look up host name '%s'",
                       e->host);
    l->result = lookup_ask(l, AI_NUMERICHOST, &l->list); /* an address needs no lookup */
    if (l->result != 0)
        return lookup_run(l, e, deadline_ns, ret_addresses, err);
    int error = lookup_finish(l, e, ret_addresses, err);
    lookup_free(l);
    return error;
}

/* --- a name that other hosts cannot use ------------------------------------------------------- */

static bool is_loopback(const struct endpoint_address *a, char *text, size_t text_bytes)
{
    struct endpoint e = {0};
    if (getnameinfo((const struct sockaddr *)&a->socket, a->bytes, e.host, sizeof(e.host), NULL, 0,
                    NI_NUMERICHOST) != 0)
        return false;
    if (*text == 0)
        snprintf(text, text_bytes, "%s", e.host);
    return endpoint_is_loopback(&e);
}

bool endpoint_name_is_loopback(const char *host, uint64_t deadline_ns, char *address,
                               size_t address_bytes)
{
    struct endpoint e = {.port = ENDPOINT_PORT_DEFAULT};
    struct endpoint_addresses found;
    snprintf(e.host, sizeof(e.host), "%s", host);
    *address = 0;
    if (endpoint_is_loopback(&e) || endpoint_resolve(&e, deadline_ns, &found, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < found.count; i++) {
        if (!is_loopback(&found.list[i], address, address_bytes))
            return false;
    }
    return true;
}

/* --- a host whose address may change ---------------------------------------------------------- */

/* Starts a lookup. Returns NULL if the host is a numeric address, or if memory or a thread is
 * missing. */
static struct lookup *lookup_begin(const struct endpoint *e)
{
    struct lookup *l = e->is_unix ? NULL : lookup_create(e);
    if (l == NULL)
        return NULL;
    bool is_address = lookup_ask(l, AI_NUMERICHOST, &l->list) == 0;
    if (!is_address && thread_start(&l->thread, lookup_main, l) == 0)
        return l;
    lookup_free(l);
    return NULL;
}

void endpoint_names_refresh(const struct endpoint *e, struct endpoint_names *names,
                            uint64_t deadline_ns)
{
    if (names->pending == NULL)
        names->pending = lookup_begin(e);
    if (names->pending == NULL || !lookup_wait(names->pending, deadline_ns))
        return;
    if (names->pending->result == 0)
        take_list(names->pending->list, &names->known);
    endpoint_names_rest(names);
}

void endpoint_names_rest(struct endpoint_names *names)
{
    if (names->pending != NULL)
        lookup_end(names->pending);
    names->pending = NULL;
}
