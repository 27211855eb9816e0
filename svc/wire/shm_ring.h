/* A ring of fixed-size records in memory that two processes share: one produces, one consumes, and
 * neither trusts what the other writes (svc/wire/README.md, S1 and S2). No system calls, no
 * waiting: who is woken when is shm_bell.h's business. */
#ifndef GRADPOOL_WIRE_SHM_RING_H
#define GRADPOOL_WIRE_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_RING_RECORDS 1024u /* a power of two */
#define SHM_BODY_BYTES_MAX 120

enum shm_record_kind {
    SHM_RECORD_MESSAGE = 1, /* body: what fabric_send() was given */
    SHM_RECORD_WORD = 2,    /* word: of a write or notify that has landed */
    SHM_RECORD_LEND = 3, /* word: region; body: its bytes (64 bits); its memfd is on the socket */
    SHM_RECORD_WITHDRAW = 4 /* word: region */
};

struct shm_record {
    uint8_t kind; /* enum shm_record_kind */
    uint8_t bytes;
    uint16_t reserved;
    uint32_t word;
    uint8_t body[SHM_BODY_BYTES_MAX];
};
_Static_assert(sizeof(struct shm_record) == 128, "two cache lines, no holes");

/* Both counters run freely; a record's place is its number modulo SHM_RING_RECORDS. Lines are
 * apart by 128 bytes because the CPU fetches them in pairs. */
struct shm_ring {
    _Alignas(128) _Atomic uint32_t tail; /* the producer's: records published */
    _Atomic uint32_t starved;            /* the producer's: found it full, wants to be woken */
    _Alignas(128) _Atomic uint32_t head; /* the consumer's: records taken */
    _Alignas(128) struct shm_record records[SHM_RING_RECORDS];
};

/* What one connection shares. */
struct shm_rings {
    struct shm_ring to_lane, to_worker;
};

/* Each side's own counters are here; in the ring they are only published, never read back (S1). */
struct shm_producer {
    struct shm_ring *ring;
    uint32_t tail;
    uint32_t head; /* the consumer's, as last seen */
};
struct shm_consumer {
    struct shm_ring *ring;
    uint32_t head;
};

/* Makes sure of room for one record. Errors: -EAGAIN full, and the consumer has been asked to wake
 * us when it has taken something; -EBADMSG the consumer's counter is nonsense. */
int shm_reserve(struct shm_producer *p);
/* Appends a record and publishes it. `bytes` is at most SHM_BODY_BYTES_MAX. Errors as above. */
int shm_push(struct shm_producer *p, enum shm_record_kind kind, uint32_t word, const void *body,
             size_t bytes);
/* Whether there is room; takes back the wish to be woken if so. -EBADMSG as above. */
int shm_producer_room(struct shm_producer *p, bool *ret_room);

/* Copies the next record (header and the bytes that it says it has) and moves on; the place is
 * given back by shm_consumer_publish(). 1: a record; 0: none. -EBADMSG: tail or length is nonsense;
 * `ret_record` is then undefined. */
int shm_take(struct shm_consumer *c, struct shm_record *ret_record);
void shm_consumer_publish(struct shm_consumer *c);
bool shm_consumer_is_empty(const struct shm_consumer *c);
/* The producer waits for room. To be read after shm_fence() that follows the publishing (W8). */
bool shm_consumer_starves_peer(const struct shm_consumer *c);

/* The fence of W8. */
static inline void shm_fence(void)
{
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
/* The thread sanitizer does not model fences. It does not have to: all that is shared and racing
 * is atomic, and records are ordered by release and acquire of the tail. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    atomic_thread_fence(memory_order_seq_cst);
#pragma GCC diagnostic pop
}

#endif
