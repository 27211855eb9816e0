/* A ring of records of fixed size in memory that two processes share. One process produces, the
 * other consumes, and neither trusts the bytes of the other (svc/fabric/shm/README.md, S1 and S2).
 * The ring makes no system call and never waits; bell.h wakes. */
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
    SHM_RECORD_WORD = 2,    /* word: word of a write or notify that has landed */
    /* word: number of the region; body: its length (64 bits); its memfd is on the socket */
    SHM_RECORD_LEND = 3,
    SHM_RECORD_WITHDRAW = 4 /* word: number of the region */
};

struct shm_record {
    uint8_t kind; /* a value of enum shm_record_kind */
    uint8_t bytes;
    uint16_t reserved;
    uint32_t word;
    uint8_t body[SHM_BODY_BYTES_MAX];
};
_Static_assert(sizeof(struct shm_record) == 128, "two cache lines, no holes");

/* Both counters grow without limit; the place of a record is its number modulo SHM_RING_RECORDS.
 * The cache lines are 128 bytes apart, because the CPU loads them in pairs. */
struct shm_ring {
    _Alignas(128) _Atomic uint32_t tail; /* written by the producer: number of published records */
    /* written by the producer: the ring was full, and the producer wants to be woken */
    _Atomic uint32_t starved;
    _Alignas(128) _Atomic uint32_t head; /* written by the consumer: number of taken records */
    _Alignas(128) struct shm_record records[SHM_RING_RECORDS];
};

/* The memory that the two ends of a connection share. */
struct shm_rings {
    struct shm_ring to_lane, to_worker;
};

/* A side's private counters. In the ring they are only published, and never read back (S1). */
struct shm_producer {
    struct shm_ring *ring;
    uint32_t tail;
    uint32_t head; /* counter of the consumer when it was last read */
};
struct shm_consumer {
    struct shm_ring *ring;
    uint32_t head;
};

/* Returns 0 if there is room for one record. -EAGAIN: the ring is full, and the consumer will wake
 * the producer when it has taken a record; -EBADMSG: the consumer's counter is invalid. */
int shm_reserve(struct shm_producer *p);
/* Appends a record and publishes it. `bytes` is at most SHM_BODY_BYTES_MAX. Errors of
 * shm_reserve(). */
int shm_push(struct shm_producer *p, enum shm_record_kind kind, uint32_t word, const void *body,
             size_t bytes);
/* Returns whether there is room. If so, the consumer need not wake the producer any more. -EBADMSG
 * as in shm_reserve(). */
int shm_producer_room(struct shm_producer *p, bool *ret_room);

/* Copies the next record (its header, and as many bytes as it names) and advances.
 * shm_consumer_publish() frees the place. 1: a record; 0: none. -EBADMSG: counter or length is
 * invalid; `ret_record` is undefined then. */
int shm_take(struct shm_consumer *c, struct shm_record *ret_record);
void shm_consumer_publish(struct shm_consumer *c);
bool shm_consumer_is_empty(const struct shm_consumer *c);
/* Returns whether the producer waits for room. Called after publishing and shm_fence() (W8). */
bool shm_consumer_starves_peer(const struct shm_consumer *c);

/* The memory fence of W8. */
static inline void shm_fence(void)
{
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
/* The thread sanitizer does not model fences. It does not need to: all shared data with races is
 * atomic, and release and acquire of the tail order the records. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    atomic_thread_fence(memory_order_seq_cst);
#pragma GCC diagnostic pop
}

#endif
