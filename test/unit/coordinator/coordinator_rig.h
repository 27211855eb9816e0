/* Runs a coordinator in this process step by step. Its peers use real sockets: clients, operators
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
/* memory that a lane needs for a piece, and the same amount again for each rank of the piece */
#define RIG_COST_BYTES 500

/* A connection to the coordinator. */
struct end {
    struct rig *rig;
    struct channel *channel; /* NULL: not connected */
    bool is_gone;            /* the coordinator has closed the connection */
    /* true: the end is an aggregator that answers requests automatically, with Done or with
     * figures */
    bool answers;
    envelope *inbox[RIG_INBOX_MAX];
    size_t inbox_count;
    uint64_t last_id;
    /* true: the test answers the holds of this worker; false: the rig answers each hold at once,
     * with the end of the iteration */
    bool takes_holds;
    /* the following fields belong to an aggregator */
    uint32_t aggregator, lanes[4], lanes_count;
    uint64_t incarnation;
    int process; /* PID reported by the aggregator; 0: this process */
    /* `ignores`: kind of requests that get no answer. `refuses`: kind of requests that get the
     * error -EIO. 0: none */
    int ignores, refuses;
    int refusal;          /* error used instead of -EIO; 0: none */
    uint64_t state_bytes; /* bytes of each piece's state in answers to a release */
    uint64_t round;       /* last committed round in answers; 0: RIG_ROUND */
    /* number of rounds by which the last piece of an answer lags behind `round` */
    uint64_t lag;
    uint64_t steps;  /* value in answers: number of steps since the parameters were set, plus 1 */
    bool recovering; /* the lane still waits for the workers' states of pieces */
};
#define RIG_ROUND 7u                  /* last committed round in answers */
#define RIG_STATE_BYTES_MAX (1 << 20) /* maximum bytes of state in one answer */

struct rig {
    char dir[64];
    struct coordinator *coordinator;
    struct coordinator_options options;
    struct end ends[RIG_ENDS_MAX];
    size_t ends_count;
    /* the coordinator's grants for local aggregators, in the order of their arrival */
    char grants[RIG_SLOTS_MAX][64];
    uint32_t starts, stops; /* number of local aggregators started and stopped */
    struct key node_key;    /* key of an operator, with which aggregators connect over TCP */
    bool has_node_key;
    int processes[RIG_SLOTS_MAX];
    /* memory of the lanes' NUMA node, sent in the greeting; 0: unknown */
    uint64_t memory_bytes;
    uint64_t network_bytes_per_s; /* bandwidth of the lanes' interface; 0: unknown */
    bool locals_give_up; /* true: local aggregators end with an error; false: they are killed */
    /* called before and after each step of the coordinator; NULL: none */
    void (*in_step)(bool begins);
};

/* Set-up and tear-down for cmocka. *state is the rig. Its coordinator runs without local
 * aggregators. */
int rig_setup(void **state);
int rig_teardown(void **state);
/* Ends the coordinator like kill -9. Its memory is lost, and its connections are closed. */
void rig_crash(struct rig *rig);
void rig_start(struct rig *rig);
/* Starts another coordinator with an empty state directory. */
void rig_start_afresh(struct rig *rig);
/* Returns the text of the last event of that kind (`gradpool status`); "": there is none. */
const char *rig_last_event(const struct rig *rig, const char *kind);

/* Connects, and exchanges the greeting. */
struct end *rig_connect(struct rig *rig, WIRE(Role) role);
/* Like rig_connect() over the Unix socket. */
struct end *rig_connect_locally(struct rig *rig, WIRE(Role) role);
/* Like rig_connect(), over TLS with a key. */
struct end *rig_connect_with_key(struct rig *rig, WIRE(Role) role, const struct key *key);
/* Connects an aggregator over TCP with an operator's key, like one on another host. */
struct end *rig_connect_node(struct rig *rig);
/* Connects over the Unix socket from a child process. For the coordinator, the child is the
 * peer. */
struct end *rig_connect_as_child(struct rig *rig, WIRE(Role) role);
/* Connects, but sends no message. */
struct end *rig_connect_silently(struct rig *rig);
/* Like rig_connect_silently() over the Unix socket. */
struct end *rig_knock_locally(struct rig *rig);
void hello_request(envelope *e, WIRE(Hello) * hello, WIRE(Role) role);
void end_close(struct end *e);
/* Starts a process that only waits. rig_kill() or the tear-down ends it. */
int rig_spawn(struct rig *rig);
void rig_kill(struct rig *rig, int pid);

/* Sends the message with a new id. Returns the id. */
uint64_t end_send(struct end *e, envelope *message);
/* Waits for the next message of this kind. Other messages remain queued. The caller frees the
 * message. */
envelope *end_expect(struct end *e, int body);
/* Checks the code of a failure, and checks that its text contains `words`. */
void assert_failed_so(int got, const char *got_text, int code, const char *words);
void end_expect_job_failure(struct end *e, int code, const char *words);
/* Waits for the reply to the message with that id. */
envelope *end_expect_reply(struct end *e, uint64_t id);
/* Sends a request, waits for the reply, and returns the reply. */
envelope *end_ask(struct end *e, envelope *request);
/* Sends a request. Expects a Failure with this code. The text of the Failure must contain
 * `text`. */
void end_ask_refused(struct end *e, envelope *request, int code, const char *text);
void end_expect_closed(struct end *e);
/* Waits until the coordinator has handled all sent messages. Checks that no message of this kind
 * has arrived. */
void end_expect_none(struct end *e, int body);
void rig_settle(struct rig *rig);
/* Handles one event of the coordinator, and the messages received by its peers. */
void rig_step(struct rig *rig);
/* Like rig_step(), but waits for an event. */
void rig_step_within(struct rig *rig, uint64_t wait_ns);
void message_free(envelope *message);

/* --- requests --- */

void join_request(envelope *e, WIRE(JoinRequest) * join, const char *job, uint32_t rank,
                  uint32_t workers);
/* Sets the request's fields as if this process of the host had sent the request. The coordinator
 * then detects the end of this process. */
void join_request_of_process(WIRE(JoinRequest) * join, int pid);
/* Returns a joined client with its session and job number. */
struct end *rig_join(struct rig *rig, const char *job, uint32_t rank, uint32_t workers,
                     uint64_t *ret_session, uint32_t *ret_job);
/* Sends a declaration. The caller waits for DECLARE_REPLY or FAILURE with end_expect(). */
uint64_t end_declare(struct end *e, size_t count, const char *const *names,
                     const uint64_t *elements);
uint64_t end_declare_one(struct end *e, const char *name, uint64_t elements);
void end_undeclare(struct end *e, uint32_t tensor);
/* Sends a request to leave, and expects the reply. */
void end_leave(struct end *e);

/* Returns a joined aggregator with `lanes` lanes, which answers automatically. */
struct end *rig_aggregator(struct rig *rig, uint32_t lanes);
/* Like rig_aggregator(), in a child process with the grant of a local aggregator ("": none). */
struct end *rig_local_aggregator(struct rig *rig, uint32_t lanes, const char *grant);
/* Joins again over a new connection, with the pieces that the aggregator serves. */
struct end *rig_rejoin(struct rig *rig, const struct end *old, size_t held_count,
                       const WIRE(PieceHeld) * held);
/* Like rig_rejoin(), with the shards of a table; NULL: none. */
struct end *rig_rejoin_with_table(struct rig *rig, const struct end *old,
                                  const WIRE(TableHeld) * held);
/* Sends a declaration of one table with the update rule Adagrad and default terms. */
uint64_t end_declare_table(struct end *e, const char *name, uint32_t dim, uint32_t shards);
void end_answer(struct end *e, const envelope *request);
/* Sends the goodbye of an aggregator whose end is planned. */
void end_say_goodbye(struct end *e);

#endif
