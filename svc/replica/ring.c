/* Memory of rings, their offers, and the reports of both ends. README: J7. */
#include "svc/replica/ring.h"

#include "svc/replica/internal.h"

#include "svc/base/system/cgroup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static int ring_create(struct holder_link *l, uint32_t copy, uint64_t bytes)
{
    struct cgroup_memory group = cgroup_memory("");
    struct kept_ring *ring = calloc(1, sizeof *ring);
    void *memory = NULL;
    if (!ring)
        return -ENOMEM;
    int error = cgroup_memory_fits(&group, bytes) ? 0 : -ENOSPC;
    if (error == 0)
        error = slabs_alloc(&l->job->slabs, bytes, &memory);
    if (error < 0) {
        free(ring);
        return error;
    }
    memset(memory, 0, bytes); /* the slab may have been used before */
    *ring = (struct kept_ring){.copy = copy, .bytes = bytes, .memory = memory};
    l->ring = ring;
    l->copies++;
    return 0;
}

void kept_ring_free(struct holder_link *l)
{
    if (!l->ring)
        return;
    l->copies -= !l->ring->is_over;
    slabs_free(&l->job->slabs, l->ring->memory);
    free(l->ring);
    l->ring = NULL;
}

void kept_ring_closed(struct holder_link *l)
{
    if (l->ring && l->ring->is_over)
        kept_ring_free(l);
    else if (l->ring)
        l->ring->is_offered = false;
}

/* ---- records ---- */

static int ring_offer(struct holder_link *l, struct kept_ring *ring)
{
    struct slab_place place;
    slabs_find(&l->job->slabs, ring->memory, ring->bytes, &place);
    const struct record_ring offer = {
        .kind = RECORD_RING, .copy = ring->copy, .region = place.region, .offset = place.offset};
    int error = fabric_send(l->conn, &offer, sizeof offer, NULL, 0);
    ring->is_offered |= error == 0;
    return error;
}

static int ring_send_taken(struct holder_link *l, struct kept_ring *ring)
{
    struct slab_place place;
    slabs_find(&l->job->slabs, ring->memory, ring->bytes, &place);
    const struct record_taken taken = {
        .kind = RECORD_TAKEN, .region = place.region, .position = ring->taken};
    int error = fabric_send(l->conn, &taken, sizeof taken, NULL, 0);
    if (error == 0)
        ring->told = ring->taken;
    return error;
}

/* Offers the ring once on each connection, and reports applied blocks. The owner ends its log with
 * the connection, so the offer on a later connection has no effect, and the owner reports no more
 * blocks. */
int kept_ring_flush(struct holder_link *l)
{
    struct kept_ring *ring = l->ring;
    if (!ring || ring->is_over)
        return 0;
    int error = ring->is_offered ? 0 : ring_offer(l, ring);
    if (error == 0 && ring->taken > ring->told)
        error = ring_send_taken(l, ring);
    return error;
}

void kept_ring_logged(struct holder_link *l, const struct record_logged *logged)
{
    struct kept_ring *ring = l->ring;
    const struct holder_options *options = &l->job->holder->options;
    if (!ring || ring->is_over || logged->copy != ring->copy || logged->position <= ring->logged)
        return;
    ring->logged = logged->position;
    options->asks(options->context);
}

/* ---- the interface ---- */

static void ring_end_other(struct holder_link *l, uint32_t copy)
{
    if (!l->ring || l->ring->copy == copy || l->ring->is_over)
        return;
    l->copies++; /* the extra count keeps the link */
    holder_link_end_ring(l);
    l->copies--;
}

/* A repeated call passes the owner's last report on again, because the lane of this process has
 * ignored each report that arrived before the copy was placed. */
static int ring_lend(struct holder_link *l, uint32_t copy, uint64_t bytes)
{
    const struct holder_options *options = &l->job->holder->options;
    ring_end_other(l, copy);
    if (l->ring && l->ring->is_over)
        return -EAGAIN; /* the lane may still write into an earlier ring */
    if (!l->ring)
        return ring_create(l, copy, bytes);
    l->ring->passed_on = 0;
    options->asks(options->context);
    return 0;
}

static void ring_end_use(struct holder *k)
{
    engine_flush(&k->engine);
    engine_kick(&k->engine);
    pthread_mutex_unlock(&k->lock);
}

int holder_lend_ring(struct holder *k, const struct holder_ring *ring, const char *name,
                     uint64_t bytes, const char **ret_memory)
{
    pthread_mutex_lock(&k->lock);
    struct kept_job *job = holder_get_job(k, ring->job, name);
    struct holder_link *l = job ? holder_link_get(job, ring->lane) : NULL;
    int error = l ? ring_lend(l, ring->copy, bytes) : -ENOMEM;
    if (error == 0)
        *ret_memory = l->ring->memory;
    if (l && l->copies == 0 && !l->conn)
        holder_link_end(l);
    else if (error == 0)
        holder_link_use(l);
    if (job)
        kept_job_release(job);
    ring_end_use(k);
    return error;
}

bool holder_has_ring(struct holder *k, const struct holder_ring *ring)
{
    pthread_mutex_lock(&k->lock);
    const struct holder_link *l = holder_find_link(k, ring->job, ring->lane);
    bool has = l && l->ring && !l->ring->is_over && l->ring->copy == ring->copy;
    pthread_mutex_unlock(&k->lock);
    return has;
}

int holder_withdraw_ring(struct holder *k, uint32_t job, uint32_t lane)
{
    pthread_mutex_lock(&k->lock);
    struct holder_link *l = holder_find_link(k, job, lane);
    bool may_write = l && l->ring && l->conn;
    if (may_write)
        holder_link_fence(l);
    ring_end_use(k);
    return may_write ? -EAGAIN : 0;
}

void holder_end_ring(struct holder *k, uint32_t job, uint32_t lane)
{
    pthread_mutex_lock(&k->lock);
    struct holder_link *l = holder_find_link(k, job, lane);
    struct kept_job *of = l ? l->job : NULL;
    if (l && l->ring && !l->ring->is_over)
        holder_link_end_ring(l);
    if (of)
        kept_job_release(of);
    ring_end_use(k);
}

/* Returns the next link with a report; NULL: none. */
static struct holder_link *ring_next_logged(struct holder *k)
{
    list_for_each (node, &k->jobs) {
        struct kept_job *job = list_entry(node, struct kept_job, node);
        list_for_each_entry (struct holder_link, l, &job->links, node)
            if (l->ring && !l->ring->is_over && l->ring->logged > l->ring->passed_on)
                return l;
    }
    return NULL;
}

bool holder_next_logged(struct holder *k, struct holder_ring *ret_ring, uint64_t *ret_position)
{
    pthread_mutex_lock(&k->lock);
    struct holder_link *l = ring_next_logged(k);
    if (l) {
        *ret_ring = (struct holder_ring){l->job->id, l->lane, l->ring->copy};
        *ret_position = l->ring->passed_on = l->ring->logged;
    }
    pthread_mutex_unlock(&k->lock);
    return l != NULL;
}

void holder_taken(struct holder *k, const struct holder_ring *ring, uint64_t position)
{
    pthread_mutex_lock(&k->lock);
    struct holder_link *l = holder_find_link(k, ring->job, ring->lane);
    if (l && l->ring && l->ring->copy == ring->copy && position > l->ring->taken) {
        l->ring->taken = position;
        holder_link_flush(l);
    }
    ring_end_use(k);
}
