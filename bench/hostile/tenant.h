/* The connection of a hostile tenant, and its attacks. Each attack is a process of its own, which
 * is killed at the end of its time: no attack cleans up. */
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
    struct endpoint endpoint; /* TCP: an owner of the Unix socket would be an operator */
    struct key key;
    uint64_t random, until_ns;
    _Atomic uint64_t *done; /* requests, records, connections of this attack so far */
};

struct attack {
    const char *name;
    uint32_t slots; /* length in slots of time */
    uint64_t begun; /* count at which the attack is in full effect */
    void (*run)(struct tenant *t);
};

/* Limits for one attack at a time. */
#define PLANS 32
#define LISTS 32
#define HALVES 8 /* messages of 16 MiB each, which the coordinator may buffer */
#define GREETINGS 96
#define STORMS 8
#define UNTOUCHED 160 /* regions of 1 TiB: more than an address space has */
#define LENDS 4
#define PUNCHED_RANKS 4
#define WIDE 256 /* ranks of one job */
#define NARROW 4

void attack_plans(struct tenant *t);     /* dry runs of a tensor of 512 GiB */
void attack_lists(struct tenant *t);     /* lists of jobs, many at a time */
void attack_halves(struct tenant *t);    /* messages whose last byte never comes */
void attack_greetings(struct tenant *t); /* connections that never send a greeting */
void attack_storms(struct tenant *t);    /* joins, with a goodbye or without */
void attack_untouched(struct tenant *t); /* huge regions without a page */
void attack_lends(struct tenant *t);     /* the same memory lent and withdrawn */
void attack_punches(struct tenant *t);   /* pages taken out of memory that a lane reads */
void attack_wide(struct tenant *t);      /* sums of very many ranks of one process */
void attack_narrow(struct tenant *t);    /* control: sums of four ranks of one process */
void attack_strangers(struct tenant *t); /* connections to a lane without a ticket */
void attack_junk(struct tenant *t);      /* records without sense, and rings overwritten */

bool tenant_has_time(const struct tenant *t);
uint32_t tenant_draw(struct tenant *t, uint32_t below);
void tenant_pause_us(uint64_t us);
/* A job name that no earlier attack has used: the service remembers workers without a goodbye. */
#define TENANT_JOB_BYTES 48
const char *tenant_name_job(const char *attack, size_t number, char *ret_name);

/* tenant.c. A greeted connection, tried again until the service accepts; NULL: the time is over. */
struct channel *tenant_greet(struct tenant *t, WIRE_TYPE(Role) role);
/* Returns the answer, which the caller frees; NULL: no answer, and the connection may be closed. */
envelope *tenant_call(struct tenant *t, struct channel *ch, envelope *request);
bool tenant_join(struct tenant *t, struct channel *ch, const char *job, uint32_t rank,
                 uint32_t workers);

/* rank.c. One rank of a job with one tensor of one piece, connected to its lane. */
struct seat {
    struct channel *control;
    struct fabric_conn *lane;
    bool is_over; /* the lane has closed the connection */
    uint32_t piece, epoch;
    uint64_t bytes, round;
    char shm[FABRIC_ADDRESS_BYTES_MAX], ofi[FABRIC_ADDRESS_BYTES_MAX]; /* addresses of the lane */
};

/* Joins, declares `bytes` of floats, finds the lane. False: refused, or the time is over. */
bool seat_join(struct tenant *t, const char *job, uint32_t rank, uint32_t workers, uint64_t bytes,
               struct seat *ret_seat, void *ret_ticket);
/* Like the above, and connects to the lane over the fabric. */
bool seat_take(struct tenant *t, struct fabric *f, const char *job, uint32_t rank, uint32_t workers,
               uint64_t bytes, struct seat *ret_seat);
/* Writes the next announcement, at most FABRIC_MESSAGE_BYTES_MAX bytes: input at the beginning of
 * region 0, result behind the input. Returns the record's bytes. */
size_t seat_write(const struct seat *seat, void *ret_record);
bool seat_announce(struct seat *seat);
/* Receives pending events. Returns the number of results; marks the seats whose connection has
 * ended. */
uint32_t seat_look(struct fabric *f, struct seat *seats, size_t count);
void seat_leave(struct fabric *f, struct seat *seat);

#endif
