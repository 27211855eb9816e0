/* A coordinator in this process, stepped by hand, and its peers on real sockets: clients, operators
 * and aggregators. Every wait has a deadline. */
#ifndef GRADPOOL_TEST_COORDINATOR_RIG_H
#define GRADPOOL_TEST_COORDINATOR_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>

#include "svc/channel/channel.h"
#include "svc/coordinator/coordinator.h"
#include "svc/coordinator/fleet/provisioner.h"
#include "svc/wire/record.h"
#include "test/lib/kept_log.h"

#define WIRE(type) Gradpool__Wire__##type
#define BODY(name) GRADPOOL__WIRE__ENVELOPE__BODY_##name
#define RIG_ENDS_MAX 2048
#define RIG_INBOX_MAX 256
#define RIG_SLOTS_MAX 4
#define RIG_COST_BYTES 500 /* cost of a piece for its lane, and of each rank of the piece */

/* one connection to the coordinator */
struct end {
    struct rig *rig;
    struct channel *channel; /* NULL: not connected */
    bool is_gone;            /* the coordinator has closed the connection */
    bool answers;            /* an aggregator that answers with Done (and figures) by itself */
    envelope *inbox[RIG_INBOX_MAX];
    size_t inbox_count;
    uint64_t last_id;
    /* The worker's test answers holds. Otherwise the worker reports an ended iteration at once. */
    bool takes_holds;
    /* fields of an aggregator */
    uint32_t aggregator, lanes[4], lanes_count;
    uint64_t incarnation;
    int process; /* process that the aggregator reports; 0: this one */
    /* kinds of messages that get no answer, or the answer -EIO; 0: none */
    int ignores, refuses;
    int refusal;          /* error instead of -EIO; 0: -EIO */
    uint64_t state_bytes; /* bytes of each piece's state in the answer to a release */
    uint64_t round;       /* last committed round in answers; 0: RIG_ROUND */
    uint64_t lag;         /* rounds by which the last of several pieces is behind `round` */
    uint64_t steps;       /* steps since the parameters were set, plus one; in answers */
    bool recovering;      /* workers have yet to report the state of pieces to the lane */
};
#define RIG_ROUND 7u                  /* last committed round in answers */
#define RIG_STATE_BYTES_MAX (1 << 20) /* most bytes of state in one answer */

struct rig {
    char dir[64];
    struct coordinator *coordinator;
    struct coordinator_options options;
    struct end ends[RIG_ENDS_MAX];
    size_t ends_count;
    /* grants that the coordinator gave to its provisioner; the latest is last */
    char grants[RIG_SLOTS_MAX][64];
    uint32_t starts, stops; /* local aggregators started and stopped */
    struct key node_key;    /* an operator's key, for aggregators over TCP */
    bool has_node_key;
    int processes[RIG_SLOTS_MAX];
    uint64_t memory_bytes;        /* memory of the lanes' NUMA node in their greeting; 0: unknown */
    uint64_t network_bytes_per_s; /* bandwidth of their interface; 0: unknown */
    bool locals_give_up; /* local aggregators end with an error of their own; false: killed */
    void (*in_step)(bool begins); /* called around each step of the coordinator; NULL: nothing */
};

/* cmocka set-up and tear-down. *state is the rig, with a running coordinator without local
 * aggregators. */
int rig_setup(void **state);
int rig_teardown(void **state);
/* Ends the coordinator like kill -9: its memory is lost, and connections break. */
void rig_crash(struct rig *rig);
void rig_start(struct rig *rig);
/* Starts another coordinator on an empty state directory. */
void rig_start_afresh(struct rig *rig);
/* Returns the text of the last event of that kind (`gradpool status`); "": there is none. */
const char *rig_last_event(const struct rig *rig, const char *kind);

/* Connects, and exchanges the greeting. */
struct end *rig_connect(struct rig *rig, WIRE(Role) role);
/* Like rig_connect() over the Unix socket. */
struct end *rig_connect_locally(struct rig *rig, WIRE(Role) role);
/* Like rig_connect() with a key, in TLS. */
struct end *rig_connect_with_key(struct rig *rig, WIRE(Role) role, const struct key *key);
/* Connects an aggregator over TCP, as from another host, with the key of an operator. */
struct end *rig_connect_node(struct rig *rig);
/* Connects over the Unix socket, from a child process, which then counts as the peer. */
struct end *rig_connect_as_child(struct rig *rig, WIRE(Role) role);
/* Connects without sending a message. */
struct end *rig_connect_silently(struct rig *rig);
/* Like rig_connect_silently() over the Unix socket. */
struct end *rig_knock_locally(struct rig *rig);
void hello_request(envelope *e, WIRE(Hello) * hello, WIRE(Role) role);
void end_close(struct end *e);
/* Starts a process that does nothing; rig_kill() or the tear-down ends it. */
int rig_spawn(struct rig *rig);
void rig_kill(struct rig *rig, int pid);

/* Sends with a new id. Returns the id. */
uint64_t end_send(struct end *e, envelope *message);
/* Waits for the next message of this kind; other messages stay. The caller frees it. */
envelope *end_expect(struct end *e, int body);
/* Waits for the reply to the message with that id. */
envelope *end_expect_reply(struct end *e, uint64_t id);
/* Sends, and waits for the reply. */
envelope *end_ask(struct end *e, envelope *request);
/* Sends a request, and expects a Failure with that code whose text contains `text`. */
void end_ask_refused(struct end *e, envelope *request, int code, const char *text);
void end_expect_closed(struct end *e);
/* Checks that everything in flight has been handled, and that nothing of that kind has come. */
void end_expect_none(struct end *e, int body);
void rig_settle(struct rig *rig);
/* Handles one event of the coordinator, and the messages that have come for the ends. */
void rig_step(struct rig *rig);
/* Like rig_step(), but waits for an event. */
void rig_step_within(struct rig *rig, uint64_t wait_ns);
void message_free(envelope *message);

/* --- requests --- */

void join_request(envelope *e, WIRE(JoinRequest) * join, const char *job, uint32_t rank,
                  uint32_t workers);
/* Sets fields of a request as if that process of this host had sent it, whose end the coordinator
 * sees. */
void join_request_of_process(WIRE(JoinRequest) * join, int pid);
/* A client that has joined, with its session and job number. */
struct end *rig_join(struct rig *rig, const char *job, uint32_t rank, uint32_t workers,
                     uint64_t *ret_session, uint32_t *ret_job);
/* Sends the declaration; the caller waits for the reply (end_expect DECLARE_REPLY or FAILURE). */
uint64_t end_declare(struct end *e, size_t count, const char *const *names,
                     const uint64_t *elements);
uint64_t end_declare_one(struct end *e, const char *name, uint64_t elements);
void end_undeclare(struct end *e, uint32_t tensor);
/* Sends the request, and expects the reply. */
void end_leave(struct end *e);

/* An aggregator with `lanes` lanes, which has joined and answers by itself. */
struct end *rig_aggregator(struct rig *rig, uint32_t lanes);
/* Like rig_aggregator(), but in a child process, with the grant of a local aggregator ("" for
 * none). */
struct end *rig_local_aggregator(struct rig *rig, uint32_t lanes, const char *grant);
/* Joins again over a new connection, with the held pieces. */
struct end *rig_rejoin(struct rig *rig, const struct end *old, size_t held_count,
                       const WIRE(PieceHeld) * held);
void end_answer(struct end *e, const envelope *request);
/* Sends the goodbye of an aggregator with a planned end. */
void end_say_goodbye(struct end *e);

#endif
