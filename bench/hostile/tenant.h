/* The connection of a hostile tenant, and its attacks. Each attack is a separate process, which is
 * killed at the end of its time without any clean-up. */
#ifndef GRADPOOL_BENCH_HOSTILE_TENANT_H
#define GRADPOOL_BENCH_HOSTILE_TENANT_H

#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"
#include "svc/fabric/fabric.h"
#include "svc/fabric/region.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WIRE_TYPE(type) Gradpool__Wire__##type
#define BODY(name) GRADPOOL__WIRE__ENVELOPE__BODY_##name

struct tenant {
    struct endpoint endpoint; /* TCP, because a user of the Unix socket would be an operator */
    struct key key;
    uint64_t random, until_ns;
    _Atomic uint64_t *done; /* number of requests, records and connections of this attack */
};

struct attack {
    const char *name;
    uint32_t slots; /* length of the attack in time slots */
    uint64_t begun; /* number of requests after which the attack has its full effect */
    void (*run)(struct tenant *t);
};

/* Limits of each attack. Only one attack runs at a time. */
#define PLANS 32
#define LISTS 32
#define HALVES 8 /* number of messages of 16 MiB each, which the coordinator may buffer */
#define GREETINGS 96
#define STORMS 8
#define UNTOUCHED 160 /* number of regions of 1 TiB, which together exceed an address space */
#define LENDS 4
#define PUNCHED_RANKS 4
#define WIDE 256 /* number of ranks in one job */
#define NARROW 4

void attack_plans(struct tenant *t);     /* dry runs of a tensor of 512 GiB */
void attack_lists(struct tenant *t);     /* many lists of jobs at a time */
void attack_halves(struct tenant *t);    /* messages without a last byte */
void attack_greetings(struct tenant *t); /* connections that never complete a greeting */
void attack_storms(struct tenant *t);    /* joins of workers that leave, or end without leaving */
void attack_untouched(struct tenant *t); /* huge regions without pages */
void attack_lends(struct tenant *t);     /* the same memory is shared with the lane and withdrawn */
void attack_punches(struct tenant *t);   /* removes pages from memory that a lane reads */
void attack_wide(struct tenant *t);      /* sums of very many ranks in one process */
void attack_narrow(struct tenant *t);    /* control: sums of four ranks in one process */
void attack_strangers(struct tenant *t); /* connections to a lane without a ticket */
void attack_junk(struct tenant *t);      /* random records and overwritten rings */

bool tenant_has_time(const struct tenant *t);
uint32_t tenant_draw(struct tenant *t, uint32_t below);
void tenant_pause_us(uint64_t us);
/* Writes a job name that no earlier attack has used, because the service still knows workers that
 * ended without leaving. */
#define TENANT_JOB_BYTES 48
const char *tenant_name_job(const char *attack, size_t number, char *ret_name);

/* Connects and completes the greeting, again and again until the service accepts. Returns the
 * connection; NULL: the time is over. */
struct channel *tenant_greet(struct tenant *t, WIRE_TYPE(Role) role);
/* Returns the answer, which the caller frees; NULL: no answer, and the connection may be closed. */
envelope *tenant_call(struct tenant *t, struct channel *ch, envelope *request);
bool tenant_join(struct tenant *t, struct channel *ch, const char *job, uint32_t rank,
                 uint32_t workers);

/* One rank of a job with one tensor of one piece, connected to its lane (rank.c). */
struct seat {
    struct channel *control;
    struct fabric_conn *lane;
    bool is_over; /* the lane has closed the connection */
    uint32_t piece, epoch;
    uint64_t bytes, round;
    char shm[FABRIC_ADDRESS_BYTES_MAX], ofi[FABRIC_ADDRESS_BYTES_MAX]; /* addresses of the lane */
};

/* Joins, declares `bytes` of floats, and finds the lane. False: refused, or the time is over. */
bool seat_join(struct tenant *t, const char *job, uint32_t rank, uint32_t workers, uint64_t bytes,
               struct seat *ret_seat, void *ret_ticket);
/* Like seat_join(), and connects to the lane over the fabric. */
bool seat_take(struct tenant *t, struct fabric *f, const char *job, uint32_t rank, uint32_t workers,
               uint64_t bytes, struct seat *ret_seat);
/* Writes the next announcement of at most FABRIC_MESSAGE_BYTES_MAX bytes. The input is at the start
 * of region 0, and the result behind the input. Returns the size of the record. */
size_t seat_write(const struct seat *seat, void *ret_record);
bool seat_announce(struct seat *seat);
/* Handles pending events. Returns the number of results; marks seats whose connection has ended. */
uint32_t seat_look(struct fabric *f, struct seat *seats, size_t count);
void seat_leave(struct fabric *f, struct seat *seat);

#endif
