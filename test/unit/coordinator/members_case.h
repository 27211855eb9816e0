/* An elastic job, and simulated lanes. After each message, the state of each piece is checked: a
 * real lane in this state must be able to accept the message (A26, A41 of svc/lane). */
#ifndef GRADPOOL_TEST_MEMBERS_CASE_H
#define GRADPOOL_TEST_MEMBERS_CASE_H

#include "svc/wire/terms.h"
#include "test/unit/coordinator/coordinator_rig.h"

#define MEMBERS_JOB "resnet"

struct member {
    struct end *end;
    uint64_t session;
    uint32_t rank, job;
    bool is_late; /* field `is_late` of the answer to the member's join */
};

/* Fields of a join request. Zeros: a job of `workers` fixed workers. */
struct joining {
    uint32_t rank, workers, workers_max;
    bool continues;
    bool asks_entry;
    int pid; /* process id of the worker; 0: a process of another host */
};
/* Sends the request. The caller waits for the reply. */
struct end *members_ask(struct rig *rig, struct joining how, uint64_t *ret_id);
struct member members_joined(struct end *e, uint64_t id, uint32_t rank);
struct member members_join(struct rig *rig, struct joining how);
void members_join_refused(struct rig *rig, struct joining how, int code, const char *text);
/* Resumes the session of the member over a new connection. */
void members_resume(struct rig *rig, struct member *m, struct joining how);
uint64_t members_declare(struct end *e, const char *name, const struct terms *terms);
/* Waits for the answer to the declaration. Returns the tensor's number, and the ranks that each of
 * its rounds needs. */
uint32_t members_declared(struct end *e, uint64_t id, uint64_t *ret_ranks);
void members_resize(struct end *e, uint32_t workers);

/* The newest membership that the worker has received. members_told() removes all messages about the
 * membership, and fails the test if none has arrived. */
struct told {
    uint32_t version, wanted;
    uint64_t ranks;
};
struct told members_told(struct end *e);
/* Makes the lane report that the connection of the initial worker of the rank is lost. */
void members_lose(struct end *lane, uint32_t lane_id, uint32_t job, uint32_t rank);
/* Like members_lose(), for the worker that received a ticket with `entered`. */
void members_lose_late(struct end *lane, const struct member *m, uint32_t entered);
/* Makes the lane report that it waits for a new connection of the rank. */
void members_break(struct end *lane, uint32_t job, uint32_t rank);
/* Returns the epoch of the newest routes, and removes all messages with routes. 0: no routes have
 * arrived. */
uint32_t members_routed(struct end *e, uint32_t tensor, uint64_t *ret_ranks);

/* --- the state of a lane by its messages --- */

#define SHADOW_PIECES_MAX 8

struct shadow {
    struct shadow_piece {
        uint32_t id, epoch;
        uint64_t ranks;
        bool is_frozen;
    } pieces[SHADOW_PIECES_MAX];
    size_t count;
    uint64_t gone; /* all ranks that have left, according to messages to the lane */
    uint32_t regroupings, thaws;
};
/* Reads the messages to the aggregator in order, and applies them. Messages that `lane` ignores or
 * refuses are not applied. Fails the test at a message that a lane would refuse. */
void shadow_take(struct shadow *s, struct end *lane);
/* Applies a stored message. */
void shadow_do(struct shadow *s, const envelope *message);
/* Runs until the lane serves this piece for these ranks. */
void shadow_until(struct shadow *s, struct end *lane, uint32_t piece, uint64_t ranks);
const struct shadow_piece *shadow_piece(struct shadow *s, uint32_t id);
/* Makes the aggregator join again with all pieces. */
struct end *shadow_rejoin(struct shadow *s, struct rig *rig, const struct end *old, uint32_t job);

#endif
