/* Ring of records of fixed size in memory that two processes share. One process produces records,
 * the other consumes them. Each process checks all values from the other process
 * (svc/fabric/shm/README.md, S1 and S2). The ring makes no system calls and never blocks; bell.h
 * wakes the other side. */
#ifndef GRADPOOL_FABRIC_SHM_PEER_RING_H
#define GRADPOOL_FABRIC_SHM_PEER_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_RING_RECORDS 1024u /* must be a power of two */
#define SHM_BODY_BYTES_MAX 120

enum shm_record_kind {
    SHM_RECORD_MESSAGE = 1, /* body: the message of fabric_send() */
    /* word: the word of a write or notify; all bytes before it were written */
    SHM_RECORD_WORD = 2,
    /* word: number of the region; body: its length (64 bits). Its memfd is sent over the socket */
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

/* The counters are never reset. A record's index is its number modulo SHM_RING_RECORDS. The cache
 * lines are 128 bytes apart, because the CPU loads them in pairs. */
struct shm_ring {
    _Alignas(128) _Atomic uint32_t tail; /* written by the producer: number of published records */
    /* written by the producer: the ring was full, and the producer wants to be woken */
    _Atomic uint32_t starved;
    _Alignas(128) _Atomic uint32_t head; /* written by the consumer: number of consumed records */
    _Alignas(128) struct shm_record records[SHM_RING_RECORDS];
};

/* The memory that the two ends of a connection share. */
struct shm_rings {
    struct shm_ring to_lane, to_worker;
};

/* Private counters of one side. The copies in the ring are only written by this side, and never
 * read back (S1). */
struct shm_producer {
    struct shm_ring *ring;
    uint32_t tail;
    uint32_t head; /* last value of the consumer's counter */
};
struct shm_consumer {
    struct shm_ring *ring;
    uint32_t head;
};

/* Returns 0 if there is room for one record. -EAGAIN: the ring is full; the consumer will wake the
 * producer when the ring has room. -EBADMSG: the consumer's counter is invalid. */
int shm_reserve(struct shm_producer *p);
/* Appends a record and publishes it. `bytes` is at most SHM_BODY_BYTES_MAX. Returns as
 * shm_reserve(). */
int shm_push(struct shm_producer *p, enum shm_record_kind kind, uint32_t word, const void *body,
             size_t bytes);
/* Writes whether the ring has space for a record. If the ring has space, the flag `starved` is
 * cleared, and the consumer no longer wakes the producer. Returns 0, or -EBADMSG as
 * shm_reserve(). */
int shm_producer_room(struct shm_producer *p, bool *ret_room);

/* Copies the next record: the header and the number of bytes in it. shm_consumer_publish() later
 * frees the record's place. Returns 1 for a record, 0 for none, or -EBADMSG if a counter or length
 * is invalid; `ret_record` is undefined then. */
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
/* The thread sanitizer does not model fences. No race is missed: all data with races is atomic, and
 * the records are ordered by release and acquire of the tail. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    atomic_thread_fence(memory_order_seq_cst);
#pragma GCC diagnostic pop
}

#endif
