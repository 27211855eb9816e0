/* Jobs, their copies, and the lanes that write to the copies. Owns the lock, and the engine that
 * drives all connections. README: J1 to J6. */
#include "svc/replica/internal.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define AGAIN_NS (200 * NS_PER_MS) /* pause before a ticket for an absent lane is requested again */

/* ---- life ---- */

static bool has_connections(void *context)
{
    const struct holder *k = context;
    return k->engine.shm_conns + k->engine.ofi_conns > 0;
}

int holder_create(const struct holder_options *options, struct holder **ret_holder)
{
    struct holder *k = calloc(1, sizeof *k);
    if (!k)
        return -ENOMEM;
    k->options = *options;
    list_init(&k->jobs);
    pthread_mutex_init(&k->lock, NULL);
    int error = engine_init(&k->engine, &k->lock, holder_link_event, has_connections, k);
    if (error < 0) {
        pthread_mutex_destroy(&k->lock);
        free(k);
        return error;
    }
    *ret_holder = k;
    return 0;
}

static void end_job(struct kept_job *job)
{
    job->is_over = true;
    for (size_t i = 0; i < job->copies_room; i++) {
        if (job->copies[i] && job->copies[i]->is_kept)
            holder_link_drop(job->copies[i]);
    }
    list_for_each_safe (node, &job->links)
        holder_link_end(list_entry(node, struct holder_link, node));
    kept_job_release(job);
}

/* Frees a job. The fabrics are closed already, so there are no connections. */
static void forget(struct kept_job *job)
{
    list_for_each (node, &job->links)
        list_entry(node, struct holder_link, node)->conn = NULL;
    end_job(job);
}

void holder_destroy(struct holder *k)
{
    if (!k)
        return;
    engine_stop(&k->engine);
    engine_fini(&k->engine);
    list_for_each_safe (node, &k->jobs)
        forget(list_entry(node, struct kept_job, node));
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* ---- jobs ---- */

static struct kept_job *find_job(struct holder *k, uint32_t id)
{
    list_for_each_entry (struct kept_job, job, &k->jobs, node)
        if (job->id == id && !job->is_over)
            return job;
    return NULL;
}

struct kept_job *holder_get_job(struct holder *k, uint32_t id, const char *name)
{
    struct kept_job *job = find_job(k, id);
    if (job)
        return job;
    job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->holder = k;
    job->id = id;
    snprintf(job->name, sizeof job->name, "%s", name);
    list_init(&job->links);
    list_append(&k->jobs, &job->node);
    return job;
}

struct holder_link *holder_find_link(struct holder *k, uint32_t job_id, uint32_t lane)
{
    struct kept_job *job = find_job(k, job_id);
    for (struct list *node = job ? job->links.next : NULL; node && node != &job->links;
         node = node->next) {
        struct holder_link *l = list_entry(node, struct holder_link, node);
        if (l->lane == lane)
            return l;
    }
    return NULL;
}

/* ---- copies ---- */

static int keep_one(struct kept_job *job, struct holder_link *l, const struct holder_copy *spec)
{
    struct kept_copy *copy;
    int error = kept_copy_make(job, spec, &copy);
    if (error < 0)
        return error;
    bool has_let_go = copy->epoch >= spec->lost_epoch;
    copy->epoch = spec->epoch;
    holder_link_take(l, copy, has_let_go);
    return 0;
}

int holder_keep(struct holder *k, uint32_t job_id, const char *name, uint32_t lane,
                const struct holder_copy *copies, size_t count)
{
    pthread_mutex_lock(&k->lock);
    struct kept_job *job = holder_get_job(k, job_id, name);
    struct holder_link *l = job ? holder_link_get(job, lane) : NULL;
    int error = l ? 0 : -ENOMEM;
    for (size_t i = 0; i < count && error == 0; i++)
        error = keep_one(job, l, &copies[i]);
    if (l && l->copies == 0)
        holder_link_end(l);
    else if (l)
        holder_link_use(l);
    if (job)
        kept_job_release(job);
    engine_flush(&k->engine);
    engine_kick(&k->engine);
    pthread_mutex_unlock(&k->lock);
    return error;
}

static void end_pieces(struct kept_job *job, const uint32_t *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct kept_copy *copy = kept_copy_find(job, pieces[i]);
        if (copy && copy->is_kept)
            holder_link_drop(copy);
    }
    kept_job_release(job);
}

static bool is_listed(const uint32_t *pieces, size_t count, uint32_t piece)
{
    for (size_t i = 0; i < count; i++) {
        if (pieces[i] == piece)
            return true;
    }
    return false;
}

static void end_others(struct kept_job *job, const uint32_t *pieces, size_t count)
{
    for (size_t i = 0; i < job->copies_room; i++) {
        struct kept_copy *copy = job->copies[i];
        if (copy && copy->is_kept && !is_listed(pieces, count, copy->piece))
            holder_link_drop(copy);
    }
    kept_job_release(job);
}

void holder_end(struct holder *k, uint32_t job_id, const uint32_t *pieces, size_t count,
                bool others)
{
    pthread_mutex_lock(&k->lock);
    struct kept_job *job = find_job(k, job_id);
    if (job && others)
        end_others(job, pieces, count);
    else if (job && count > 0)
        end_pieces(job, pieces, count);
    else if (job)
        end_job(job);
    engine_flush(&k->engine);
    engine_kick(&k->engine);
    pthread_mutex_unlock(&k->lock);
}

/* ---- tickets ---- */

/* Returns the link that is due first, because it has to request a ticket or its attempt to connect
 * ends; NULL: no link will be due. */
static struct holder_link *first_due(struct holder *k, uint64_t *ret_due_ns)
{
    struct holder_link *first = NULL;
    *ret_due_ns = UINT64_MAX;
    list_for_each (node, &k->jobs) {
        struct kept_job *job = list_entry(node, struct kept_job, node);
        list_for_each_entry (struct holder_link, l, &job->links, node) {
            uint64_t due_ns = holder_link_due_ns(l);
            if (due_ns >= *ret_due_ns)
                continue;
            *ret_due_ns = due_ns;
            first = l;
        }
    }
    return first;
}

/* Ends attempts to connect that took too long. Returns the first link that needs a ticket now, or
 * NULL. */
static struct holder_link *take_due(struct holder *k)
{
    for (uint64_t due_ns;;) {
        struct holder_link *l = first_due(k, &due_ns);
        if (!l || due_ns > clock_now_ns())
            return NULL;
        if (l->state == LINK_ASKING)
            return l;
        holder_link_give_up(l);
        engine_kick(&k->engine);
    }
}

bool holder_next_ask(struct holder *k, struct holder_ask *ret_ask)
{
    pthread_mutex_lock(&k->lock);
    struct holder_link *l = take_due(k);
    bool is_due = l != NULL;
    if (is_due) {
        l->is_asked = true;
        *ret_ask = (struct holder_ask){l->job->id, l->lane, l->failures};
    }
    pthread_mutex_unlock(&k->lock);
    return is_due;
}

int holder_timeout_ms(struct holder *k)
{
    pthread_mutex_lock(&k->lock);
    uint64_t due_ns;
    int timeout_ms = first_due(k, &due_ns) ? clock_poll_ms(due_ns, clock_now_ns()) : -1;
    pthread_mutex_unlock(&k->lock);
    return timeout_ms;
}

void holder_ask_again(struct holder *k)
{
    pthread_mutex_lock(&k->lock);
    list_for_each (node, &k->jobs) {
        struct kept_job *job = list_entry(node, struct kept_job, node);
        list_for_each_entry (struct holder_link, l, &job->links, node) {
            l->is_asked = false;
            if (l->state == LINK_IDLE) /* the lane may have restarted, or its job may have ended */
                holder_link_ask(l, 0);
        }
    }
    pthread_mutex_unlock(&k->lock);
}

static void give_up(struct holder_link *l)
{
    l->state = LINK_IDLE;
    l->failures = 0; /* a later ticket starts the count again */
}

/* Drops all copies of the link's lane. */
static void drop_copies(struct holder_link *l)
{
    struct kept_job *job = l->job;
    l->copies++; /* the extra count keeps the link when its last copy is dropped */
    for (size_t i = 0; i < job->copies_room; i++) {
        struct kept_copy *copy = job->copies[i];
        if (copy && copy->is_kept && copy->link == l)
            holder_link_drop(copy);
    }
    l->copies--;
    if (l->copies == 0) /* otherwise the link has a ring that a lane still reads */
        holder_link_end(l);
    kept_job_release(job);
}

void holder_ticket(struct holder *k, uint32_t job, uint32_t lane, int code, const char *shm,
                   const char *ofi, const struct record_connect *ticket)
{
    pthread_mutex_lock(&k->lock);
    struct holder_link *l = holder_find_link(k, job, lane);
    if (l && l->state == LINK_ASKING && l->is_asked) {
        l->is_asked = false;
        if (code == 0)
            holder_link_connect(l, shm, ofi, ticket);
        else if (code == -EAGAIN)
            holder_link_ask(l, AGAIN_NS);
        else
            give_up(l);
        if (code == -ENOENT)
            drop_copies(l);
    }
    engine_flush(&k->engine);
    engine_kick(&k->engine);
    pthread_mutex_unlock(&k->lock);
}

/* ---- figures ---- */

void holder_measure(struct holder *k, struct holder_use *ret_use)
{
    *ret_use = (struct holder_use){0};
    pthread_mutex_lock(&k->lock);
    ret_use->connections = k->engine.shm_conns + k->engine.ofi_conns;
    list_for_each_entry (const struct kept_job, job, &k->jobs, node) {
        for (size_t i = 0; i < job->copies_room; i++) {
            const struct kept_copy *copy = job->copies[i];
            ret_use->copies += copy && copy->is_kept;
            ret_use->bytes += copy && copy->is_kept ? 2 * copy->bytes : 0;
        }
    }
    pthread_mutex_unlock(&k->lock);
}
