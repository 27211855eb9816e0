/* Fuzzes the record ring of fabric_shm, in memory that the other side may write at any time. The
 * first bytes are its counters and lengths; the rest is a script of writes between the reader's
 * steps. The reader must never leave the ring, read more records than it contains, or accept
 * impossible counters. */
#include "svc/fabric/shm/peer/ring.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct script {
    const uint8_t *at, *end;
};

static uint32_t next(struct script *s)
{
    uint32_t value = 0;
    size_t left = (size_t)(s->end - s->at), take = left < sizeof value ? left : sizeof value;
    memcpy(&value, s->at, take);
    s->at += take;
    return value;
}

/* Returns a counter that is often near the true counter, so that both possible and impossible
 * values occur. */
static uint32_t counter(struct script *s, uint32_t ours)
{
    uint32_t value = next(s);
    return value & 1 ? value : ours + (value >> 1) % (2 * SHM_RING_RECORDS);
}

static void take_all(struct shm_consumer *c)
{
    struct shm_record record;
    uint32_t taken = 0;
    int r;
    while ((r = shm_take(c, &record)) == 1) {
        assert(record.bytes <= SHM_BODY_BYTES_MAX);
        taken++;
        assert(taken <= SHM_RING_RECORDS);
    }
    assert(r == 0 || r == -EBADMSG);
    shm_consumer_publish(c);
}

static void push_some(struct shm_producer *p, uint32_t count)
{
    static const uint8_t body[SHM_BODY_BYTES_MAX];
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = shm_push(p, SHM_RECORD_MESSAGE, i, body, i % (SHM_BODY_BYTES_MAX + 1));
    assert(r == 0 || r == -EAGAIN || r == -EBADMSG);
    assert(p->tail - p->head <= SHM_RING_RECORDS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct shm_rings rings;
    struct script s = {data, data + bytes};
    struct shm_consumer in = {.ring = &rings.to_lane, .head = next(&s)};
    struct shm_producer out = {.ring = &rings.to_worker, .tail = next(&s)};
    out.head = out.tail;
    atomic_store(&out.ring->head, out.head);
    while (s.at < s.end) {
        uint32_t place = (in.head + next(&s) % 4) % SHM_RING_RECORDS;
        uint32_t header = next(&s);
        memcpy(&rings.to_lane.records[place], &header, sizeof header);
        atomic_store(&in.ring->tail, counter(&s, in.head));
        take_all(&in);
        atomic_store(&out.ring->head, counter(&s, out.head));
        push_some(&out, next(&s) % (SHM_RING_RECORDS + 2));
    }
    return 0;
}
