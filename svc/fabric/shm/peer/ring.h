/* A ring of fixed-size records in memory that two processes share: one produces, one consumes, and
 * neither trusts the bytes of the other (svc/fabric/shm/README.md, S1 and S2). No system calls, no
 * waiting: bell.h wakes. */
#ifndef GRADPOOL_FABRIC_SHM_PEER_RING_H
#define GRADPOOL_FABRIC_SHM_PEER_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_RING_RECORDS 1024u /* a power of two */
#define SHM_BODY_BYTES_MAX 120

enum shm_record_kind {
    SHM_RECORD_MESSAGE = 1, /* body: the message of fabric_send() */
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

/* The memory that the two ends of a connection share. */
struct shm_rings {
    struct shm_ring to_lane, to_worker;
};

/* A side's own counters; in the ring they are only published, never read back (S1). */
struct shm_producer {
    struct shm_ring *ring;
    uint32_t tail;
    uint32_t head; /* the consumer's, as last seen */
};
struct shm_consumer {
    struct shm_ring *ring;
    uint32_t head;
};

/* 0: there is room for one record. Errors: -EAGAIN full, and the consumer will wake the producer
 * when it has taken a record; -EBADMSG the consumer's counter is nonsense. */
int shm_reserve(struct shm_producer *p);
/* Appends a record and publishes it. `bytes` is at most SHM_BODY_BYTES_MAX. Errors as above. */
int shm_push(struct shm_producer *p, enum shm_record_kind kind, uint32_t word, const void *body,
             size_t bytes);
/* Whether there is room; if so, the consumer need not wake the producer any more. -EBADMSG as
 * above. */
int shm_producer_room(struct shm_producer *p, bool *ret_room);

/* Copies the next record (header and as many bytes as it names) and moves on;
 * shm_consumer_publish() gives the place back. 1: a record; 0: none. -EBADMSG: tail or length is
 * nonsense; `ret_record` is then undefined. */
int shm_take(struct shm_consumer *c, struct shm_record *ret_record);
void shm_consumer_publish(struct shm_consumer *c);
bool shm_consumer_is_empty(const struct shm_consumer *c);
/* Whether the producer waits for room. To be read after publishing and shm_fence() (W8). */
bool shm_consumer_starves_peer(const struct shm_consumer *c);

/* The fence of W8. */
static inline void shm_fence(void)
{
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
/* The thread sanitizer does not model fences, and need not: all shared data that races is atomic,
 * and release and acquire of the tail order the records. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    atomic_thread_fence(memory_order_seq_cst);
#pragma GCC diagnostic pop
}

#endif
