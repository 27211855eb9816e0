/* The record ring of fabric_shm. Owns the counters of each side. A counter or length of the other
 * side is copied, then checked, then used (S1). Published values are never read back, because the
 * other side can change them. */
#include "svc/fabric/shm/peer/ring.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static struct shm_record *ring_place(struct shm_ring *ring, uint32_t number)
{
    return &ring->records[number % SHM_RING_RECORDS];
}

/* Reads the consumer's counter. A valid value is between the last value and the producer's
 * counter. */
static int ring_refresh_head(struct shm_producer *p)
{
    uint32_t head = atomic_load_explicit(&p->ring->head, memory_order_acquire);

    if (head - p->head > p->tail - p->head)
        return -EBADMSG;
    p->head = head;
    return 0;
}

static bool ring_is_full(const struct shm_producer *p)
{
    return p->tail - p->head == SHM_RING_RECORDS;
}

int shm_producer_room(struct shm_producer *p, bool *ret_room)
{
    int error = ring_refresh_head(p);

    if (error < 0)
        return error;
    if (!ring_is_full(p))
        atomic_store_explicit(&p->ring->starved, 0, memory_order_relaxed);
    *ret_room = !ring_is_full(p);
    return 0;
}

/* Sets the flag by which the producer requests a wake-up, and then checks again whether the ring
 * has space (W8). */
static int ring_starve(struct shm_producer *p)
{
    bool room;
    int error;

    atomic_store_explicit(&p->ring->starved, 1, memory_order_relaxed);
    shm_fence();
    error = shm_producer_room(p, &room);
    if (error < 0)
        return error;
    return room ? 0 : -EAGAIN;
}

int shm_reserve(struct shm_producer *p) { return ring_is_full(p) ? ring_starve(p) : 0; }

int shm_push(struct shm_producer *p, enum shm_record_kind kind, uint32_t word, const void *body,
             size_t bytes)
{
    int error = shm_reserve(p);

    assert(bytes <= SHM_BODY_BYTES_MAX);
    if (error < 0)
        return error;
    struct shm_record *record = ring_place(p->ring, p->tail);
    record->kind = (uint8_t)kind;
    record->bytes = (uint8_t)bytes;
    record->reserved = 0;
    record->word = word;
    if (bytes > 0)
        memcpy(record->body, body, bytes);
    atomic_store_explicit(&p->ring->tail, ++p->tail, memory_order_release);
    return 0;
}

int shm_take(struct shm_consumer *c, struct shm_record *ret_record)
{
    uint32_t tail = atomic_load_explicit(&c->ring->tail, memory_order_acquire);

    if (tail == c->head)
        return 0;
    if (tail - c->head > SHM_RING_RECORDS)
        return -EBADMSG;

    const struct shm_record *record = ring_place(c->ring, c->head);
    memcpy(ret_record, record, offsetof(struct shm_record, body));
    if (ret_record->bytes > SHM_BODY_BYTES_MAX)
        return -EBADMSG;
    memcpy(ret_record->body, record->body, ret_record->bytes);
    c->head++;
    return 1;
}

void shm_consumer_publish(struct shm_consumer *c)
{
    atomic_store_explicit(&c->ring->head, c->head, memory_order_release);
}

bool shm_consumer_is_empty(const struct shm_consumer *c)
{
    return atomic_load_explicit(&c->ring->tail, memory_order_acquire) == c->head;
}

bool shm_consumer_starves_peer(const struct shm_consumer *c)
{
    return atomic_load_explicit(&c->ring->starved, memory_order_relaxed) != 0;
}
