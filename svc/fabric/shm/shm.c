/* fabric_shm implements fabric.h for one host over shared memory. Owns the fabric and its poll
 * loop. Other files: conn.c has the life of a connection, events.c its events, verbs.c its
 * functions, lane.c and worker.c the two ends. Never blocks. README: S1 to S15. */
#include "svc/fabric/shm/shm.h"

#include "svc/fabric/fabric_ops.h"
#include "svc/fabric/shm/events.h"
#include "svc/fabric/shm/lane.h"
#include "svc/fabric/shm/lending.h"
#include "svc/fabric/shm/map/mapper.h"
#include "svc/fabric/shm/map/memory.h"
#include "svc/fabric/shm/peer/watch.h"
#include "svc/fabric/shm/scan.h"
#include "svc/fabric/shm/verbs.h"
#include "svc/fabric/shm/worker.h"

#include "svc/base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

/* A busy lane checks its sockets only once in this number of polls. */
#define POLLS_WITHOUT_SOCKETS_MAX 16
#define MAPPED_BYTES_MAX_DEFAULT (UINT64_C(1) << 40)

static void shm_free_all(struct list *conns)
{
    list_for_each_safe (node, conns)
        shm_conn_free(list_entry(node, struct shm_conn, link));
}

static void shm_close(struct fabric *base)
{
    struct shm_fabric *f = shm_fabric(base);

    list_for_each_safe (node, &f->conns)
        shm_conn_end(list_entry(node, struct shm_conn, link), 0, 0);
    shm_free_all(&f->conns);
    shm_free_all(&f->gone);
    shm_mapper_destroy(f->mapper);
    shm_lane_close(f->lane);
    shm_watch_destroy(f->watch);
    shm_fds_close(&f->bell_fd, 1);
    shm_memory_unmap(f->bell, sizeof *f->bell);
    free(f->allowed_uids);
    free(f);
}

static const char *shm_describe(const struct fabric *base)
{
    return ((const struct shm_fabric *)base)->description;
}

static void shm_disconnect(struct fabric_conn *c) { shm_conn_end(shm_conn(c), 0, 0); }

static const char *shm_peer_text(const struct fabric_conn *base)
{
    return ((const struct shm_conn *)base)->peer_text;
}

static int shm_peer_pid(const struct fabric_conn *base)
{
    return ((const struct shm_conn *)base)->peer.pid;
}

static int shm_messages_held_max(const struct fabric *f) { return SHM_MESSAGES_MAX - 1; }

static int shm_pool_register(struct fabric *f, void *base, size_t bytes) { return 0; }
static void shm_pool_unregister(struct fabric *f, void *base) {}

static void shm_wake_peer(struct shm_conn *c)
{
    if (shm_is_lane(c))
        shm_bell_wake(c->peer_bell);
    else if (shm_bell_is_asleep(c->peer_bell))
        eventfd_write(c->wake_fd, 1);
}

static void shm_flush(struct fabric *base)
{
    struct shm_fabric *f = shm_fabric(base);

    if (list_is_empty(&f->news))
        return;
    shm_fence();
    list_for_each_safe_entry (struct shm_conn, c, &f->news, news_link) {

        if (c->pushed || shm_consumer_starves_peer(&c->in))
            shm_wake_peer(c);
        c->pushed = false;
        list_remove(&c->news_link);
    }
}

static int shm_lane_scan(struct shm_fabric *f, struct fabric_event *events, int events_max)
{
    int n = fabric_turns_take(&f->turns, shm_scan_take, events, events_max);

    if (n > 0 && ++f->polls_since_sockets < POLLS_WITHOUT_SOCKETS_MAX)
        return n;
    shm_lane_look(f);
    return n > 0 ? n : fabric_turns_take(&f->turns, shm_scan_take, events, events_max);
}

static int shm_poll(struct fabric *base, struct fabric_event *events, int events_max)
{
    struct shm_fabric *f = shm_fabric(base);
    int n;

    if (f->is_armed)
        shm_bell_get_up(f->bell);
    f->is_armed = false;
    f->polls++;
    shm_free_all(&f->gone);
    shm_lending_charge_unmapped(f);
    if (f->lane) {
        n = shm_lane_scan(f, events, events_max);
    } else {
        shm_worker_look(f);
        n = fabric_turns_take(&f->turns, shm_scan_take, events, events_max);
    }
    shm_flush(base);
    return n;
}

static bool shm_has_work(struct shm_fabric *f)
{
    if (!list_is_empty(&f->gone) || (f->watch && shm_watch_has_news(f->watch)))
        return true;
    list_for_each (node, &f->conns)
        if (shm_events_are_due(list_entry(node, struct shm_conn, link)))
            return true;
    return false;
}

static int shm_arm(struct fabric *base, struct fabric_wait *ret_wait)
{
    struct shm_fabric *f = shm_fabric(base);
    uint32_t value = shm_bell_value(f->bell);

    shm_flush(base);
    f->is_armed = true;
    shm_bell_lie_down(f->bell);
    if (shm_has_work(f)) {
        shm_bell_get_up(f->bell);
        f->is_armed = false;
        return -EAGAIN;
    }
    if (f->lane)
        *ret_wait = (struct fabric_wait){.fd = shm_lane_fd(f->lane)};
    else
        *ret_wait =
            (struct fabric_wait){.fd = -1, .bell = (uint32_t *)&f->bell->word, .bell_value = value};
    return 0;
}

static void shm_abandon_in_child(struct fabric *base)
{
    struct shm_fabric *f = shm_fabric(base);

    list_for_each (node, &f->conns)
        shm_conn_close_fds(list_entry(node, struct shm_conn, link));
    list_for_each (node, &f->gone)
        shm_conn_close_fds(list_entry(node, struct shm_conn, link));
    shm_watch_abandon(f->watch);
    shm_lane_abandon(f->lane);
    shm_fds_close(&f->bell_fd, 1);
}

static const struct fabric_conn_ops shm_conn_ops = {
    .accept = shm_lane_accept,
    .join_group = shm_scan_join,
    .refuse = shm_lane_refuse,
    .disconnect = shm_disconnect,
    .fence = shm_worker_fence,
    .leave = shm_worker_leave,
    .peer = shm_peer_text,
    .peer_pid = shm_peer_pid,
    .send = shm_verb_send,
    .message_done = shm_verb_message_done,
    .lend = shm_verb_lend,
    .withdraw = shm_verb_withdraw,
    .map = shm_verb_map,
    .is_sound = shm_verb_is_sound,
    .is_warm = shm_verb_is_warm,
    .region_bytes = shm_verb_region_bytes,
    .read = shm_verb_read,
    .write = shm_verb_write,
    .write_word = shm_verb_write_word,
    .notify = shm_verb_notify,
};

static const struct fabric_ops shm_ops = {
    .kind = "shm",
    .close = shm_close,
    .describe = shm_describe,
    .listen = shm_lane_listen,
    .connect = shm_worker_connect,
    .messages_held_max = shm_messages_held_max,
    .maps = true,
    .pool_register = shm_pool_register,
    .pool_unregister = shm_pool_unregister,
    .poll = shm_poll,
    .flush = shm_flush,
    .arm = shm_arm,
    .abandon_in_child = shm_abandon_in_child,
    .conn = &shm_conn_ops,
};

static int shm_copy_options(struct shm_fabric *f, const struct fabric_options *options)
{
    size_t count = options->allowed_uids_count;

    f->may_lend = options->may_lend;
    f->mapped_bytes_max =
        options->mapped_bytes_max ? options->mapped_bytes_max : MAPPED_BYTES_MAX_DEFAULT;
    if (count == 0)
        return 0;
    f->allowed_uids = calloc(count, sizeof *f->allowed_uids);
    if (!f->allowed_uids)
        return -ENOMEM;
    memcpy(f->allowed_uids, options->allowed_uids, count * sizeof *f->allowed_uids);
    f->allowed_uids_count = count;
    return 0;
}

static void shm_init(struct shm_fabric *f)
{
    f->base.ops = &shm_ops;
    list_init(&f->conns);
    fabric_turns_init(&f->turns);
    list_init(&f->gone);
    list_init(&f->news);
    f->bell_fd = -1;
    f->side = &shm_worker_side;
    snprintf(f->description, sizeof f->description, "shm: memfd and futex");
}

int fabric_shm_open(const struct fabric_options *options, struct fabric **ret_fabric)
{
    struct shm_fabric *f = calloc(1, sizeof *f);
    void *bell;

    if (!f)
        return -ENOMEM;
    shm_init(f);
    int error = shm_copy_options(f, options)
                    ?: shm_memory_create("gradpool-bell", sizeof *f->bell, &f->bell_fd, &bell);
    if (error < 0) {
        shm_close(&f->base);
        return error;
    }
    f->bell = bell;
    *ret_fabric = &f->base;
    return 0;
}
