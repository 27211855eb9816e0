/* What the coordinator's files share: the objects of the control plane and the functions that
 * change them. README.md says which file owns which; K1 .. are its invariants. */
#ifndef GRADPOOL_COORDINATOR_SERVICE_H
#define GRADPOOL_COORDINATOR_SERVICE_H

#include "svc/base/clock.h"
#include "svc/coordinator/coordinator.h"
#include "svc/coordinator/loop.h"
#include "svc/coordinator/provisioner.h"
#include "svc/coordinator/store.h"
#include "svc/wire/channel.h"
#include "svc/wire/endpoint.h"

#include <limits.h>
#include <unistd.h>

#define WIRE(type) Gradpool__Wire__##type
#define BODY(name) GRADPOOL__WIRE__ENVELOPE__BODY_##name
#define ENVELOPE_INIT GRADPOOL__WIRE__ENVELOPE__INIT

#define GREET_DEADLINE_NS (5 * NS_PER_S)       /* from accept to Hello */
#define CLOSE_DEADLINE_NS NS_PER_S             /* to take our last words */
#define CALL_DEADLINE_NS (10 * NS_PER_S)       /* an aggregator's answer */
#define TICKET_DEADLINE_NS (5 * NS_PER_S)
#define STATS_DEADLINE_NS (500 * NS_PER_MS)    /* then the last known figures are shown */
#define DECLARE_DEADLINE_NS (30 * NS_PER_S)    /* all lanes' answers to one declare */
#define SESSION_AWAY_NS (10 * NS_PER_S)        /* a worker without control connection */
#define SESSION_RESTORE_NS (30 * NS_PER_S)     /* the same after a restart of ours */
#define AGGREGATOR_LOCAL_AWAY_NS (5 * NS_PER_S)
#define AGGREGATOR_REMOTE_AWAY_NS (10 * NS_PER_S)
#define AGGREGATOR_SHOWN_NS (60 * NS_PER_S)    /* a lost one stays in `status` */
#define DRAIN_DEADLINE_NS (10 * NS_PER_S)
#define STORE_RETRY_NS NS_PER_S
#define RESTARTS_MAX 5                         /* of one local aggregator ... */
#define RESTARTS_PERIOD_NS (60 * NS_PER_S)     /* ... within this time */

#define WORKERS_MAX 768
#define JOB_NAME_BYTES_MAX 127
#define TENSOR_NAME_BYTES_MAX 255
#define TENSOR_BYTES_MAX (UINT64_C(1) << 40)
#define DECLARE_PIECES_MAX 300000u /* one DeclareReply fits a frame */
#define MESSAGE_PIECES_MAX 32768u  /* one PlaceRequest or RouteChange fits a frame */
#define TASK_BYTES_MAX (UINT64_C(4) << 20)

struct service;
struct job;
struct session;
struct aggregator;

/* --- peers.c: control connections --------------------------------------------------------- */

struct peer {
    struct source source;
    struct list link;
    struct service *service;
    struct channel *channel;
    struct timer timer; /* greeting, or closing */
    enum { PEER_GREETING, PEER_OPEN, PEER_CLOSING, PEER_BROKEN } state;
    WIRE(Role) role;
    struct session *session;
    struct aggregator *aggregator;
};

struct listener {
    struct source source;
    struct service *service;
    struct endpoint endpoint;
};

int listener_open(struct service *s, struct listener *l, const char *interface_name,
                  struct err *err);
void listener_close(struct listener *l);
int peer_accept(struct service *s, int fd);
/* A failed send breaks the peer, which is then let go from the loop: no caller has to look. */
void peer_send(struct peer *p, const envelope *message);
void peer_reply_done(struct peer *p, uint64_t id);
void peer_fail(struct peer *p, uint64_t id, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Lets it go from the loop, not before this handler ends. */
void peer_break(struct peer *p);
/* The same, once it has read what was sent. */
void peer_finish(struct peer *p);
void peers_destroy(struct service *s);

/* --- waits.c: requests whose answer needs something else first ------------------------------- */

struct wait {
    struct list link;
    uint64_t id;
    struct peer *peer;
    uint64_t request; /* the id that the reply must carry */
    struct timer timer;
    void (*expired)(struct wait *wait);
    uint32_t pending; /* calls not answered yet */
    void *data;       /* freed with it */
};

/* Takes over `data`. NULL: no memory, and the peer was told. */
struct wait *wait_create(struct peer *p, uint64_t request, uint64_t timeout_ns,
                         void (*expired)(struct wait *wait), void *data);
void wait_destroy(struct wait *wait);
struct wait *wait_find(struct service *s, uint64_t id);
void waits_cancel(struct peer *p);

/* --- calls.c: requests to aggregators -------------------------------------------------------- */

/* `reply` NULL: it failed, `code` and `text` say how. Never called from within call_send(). */
typedef void (*call_done_fn)(struct service *s, void *data, const envelope *reply, int code,
                             const char *text);

/* Sends `request` (its id is filled in). Takes over `data`, which is freed after `done`. */
int call_send(struct aggregator *a, envelope *request, uint64_t timeout_ns, call_done_fn done,
              void *data);
void call_answer(struct aggregator *a, const envelope *reply);
void calls_abandon(struct aggregator *a, int code, const char *text);
void calls_free(struct aggregator *a);

/* --- aggregators.c --------------------------------------------------------------------------- */

struct lane {
    uint32_t id, index, core, pu;
    int32_t numa;
    uint64_t memory_bytes;
    char *shm, *ofi;
    struct aggregator *aggregator;
    uint64_t load_bytes; /* of all pieces on it */
    uint32_t jobs;
};

enum aggregator_state { AGGREGATOR_UP, AGGREGATOR_AWAY, AGGREGATOR_LOST };

struct aggregator {
    struct list link;
    struct service *service;
    uint32_t id, pid, slot; /* slot 0: not ours to restart */
    uint64_t incarnation, identity;
    char *node;
    enum aggregator_state state;
    struct peer *peer;
    struct source process; /* pidfd, when it runs on this host */
    struct timer timer;    /* away: until it is lost; lost: until it is forgotten */
    struct list calls;
    struct lane *lanes;
    size_t lanes_count;
    envelope *stats; /* its last StatsReply */
};

void aggregator_handle_join(struct peer *p, const envelope *request);
void aggregator_handle_stats(struct service *s, struct aggregator *a, const envelope *reply);
/* Its control connection is gone. */
void aggregator_away(struct aggregator *a, uint64_t grace_ns);
void aggregator_destroy(struct aggregator *a);
struct aggregator *aggregator_find(struct service *s, uint32_t id);
struct lane *lane_find(struct service *s, uint32_t id);
const char *aggregator_state_name(const struct service *s, const struct aggregator *a);
/* "aggregator 2 (node7, pid 4242)" */
const char *aggregator_name(const struct aggregator *a, char *buffer, size_t buffer_bytes);
int aggregator_restore(struct service *s, const struct store_aggregator *row);
int lane_restore(struct service *s, const struct store_lane *row);

/* --- processes.c: other processes on this host ------------------------------------------------ */

/* A number that no other process of this host ever has, also after a reboot; 0: no such process. */
uint64_t process_identity(uint32_t pid);
/* A pidfd, if `pid` still is the process with that identity; else -ESRCH. */
int process_open(uint32_t pid, uint64_t identity, int *ret_fd);
void process_kill(int pidfd, int signal);
bool process_is_dead(int pidfd);

/* --- fleet.c: the local aggregators that should run -------------------------------------------- */

struct slot {
    struct service *service;
    uint32_t number; /* from 1 */
    char cores[256];
    char grant[33];
    uint16_t data_port;
    struct provisioned process; /* pid 0: none that we started */
    struct source watch;
    uint64_t starts_ns[RESTARTS_MAX]; /* ring */
    uint32_t starts;
    struct timer again;
};

int fleet_create(struct service *s, struct err *err);
/* Starts what is missing. */
void fleet_check(struct service *s);
struct slot *fleet_slot_of_grant(struct service *s, const char *grant);
/* Whether a local aggregator is about to come. */
bool fleet_expects_more(struct service *s);
void fleet_drain(struct service *s, bool now);
bool fleet_is_gone(const struct service *s);
void fleet_destroy(struct service *s);

/* --- jobs.c ------------------------------------------------------------------------------------ */

enum piece_state {
    PIECE_STRANDED, /* has no lane */
    PIECE_PLACED,   /* has one, which does not know yet */
    PIECE_ASKED,    /* a PlaceRequest is under way */
    PIECE_READY,
};

struct piece {
    uint32_t id, task, epoch;
    uint64_t first, elements;
    struct lane *lane;
    enum piece_state state;
    bool recovering;
};

struct tensor {
    struct job *job;
    uint32_t id, dtype, hash;
    uint64_t elements;
    char *name;
    char *failure; /* NULL: none */
    uint8_t ranks[STORE_RANKS_BYTES];
    uint32_t ranks_count;
    struct piece *pieces; /* ids ascend */
    size_t pieces_count;
};

/* What a job has on one lane. */
struct share {
    struct lane *lane;
    uint32_t pieces;
    uint64_t bytes;
    uint32_t open_task;
    uint64_t open_task_bytes;
};

enum session_state { SESSION_JOINED, SESSION_AWAY, SESSION_LEFT, SESSION_LOST };

struct session {
    struct job *job;
    uint32_t rank, pid;
    uint64_t number, identity;
    char *node;
    enum session_state state;
    struct peer *peer;
    struct source process; /* pidfd, when it runs on this host */
    struct timer away;
};

struct job {
    struct list link;
    struct service *service;
    uint32_t id, workers, epoch, next_tensor, next_piece;
    char *name;
    char *failure; /* NULL: none */
    struct session **sessions; /* by rank; NULL: has not joined */
    struct tensor **tensors;   /* ids ascend */
    size_t tensors_count, tensors_capacity;
    struct share *shares;
    size_t shares_count;
};

struct job *jobs_create(struct service *s, uint32_t id, const char *name, uint32_t workers);
void jobs_destroy(struct job *job);
struct job *jobs_find(struct service *s, const char *name);
struct job *jobs_find_id(struct service *s, uint32_t id);
bool jobs_is_complete(const struct job *job);
/* Tells every rank (but `except`), once. */
void jobs_fail(struct job *job, const struct session *except, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Ends the job when nobody is left in it; it may be gone afterwards. */
void jobs_end_if_empty(struct job *job);
void jobs_row(const struct job *job, struct store_row *ret_row);
int jobs_restore(struct service *s, const struct store_job *row);

int jobs_add_tensor(struct job *job, struct tensor *tensor);
void jobs_remove_tensor(struct job *job, struct tensor *tensor);
struct tensor *jobs_tensor(const struct job *job, uint32_t id);
struct tensor *jobs_tensor_named(const struct job *job, const char *name);
struct piece *jobs_piece(const struct job *job, uint32_t id, struct tensor **ret_tensor);
/* The job's share of the lane, made if there is none; NULL: no memory. */
struct share *jobs_share(struct job *job, struct lane *lane);
void jobs_broadcast(struct job *job, const struct session *except, const envelope *message);

/* --- session.c --------------------------------------------------------------------------------- */

void session_handle_join(struct peer *p, const envelope *request);
void session_handle_leave(struct peer *p, const envelope *request);
void session_away(struct session *session, uint64_t grace_ns);
void session_destroy(struct session *session);
int session_restore(struct service *s, const struct store_session *row);
const char *session_state_name(enum session_state state);
/* "rank 2 of job resnet (node7, pid 4242)" */
const char *session_name(const struct session *session, char *buffer, size_t buffer_bytes);

/* --- tensors.c --------------------------------------------------------------------------------- */

void tensors_handle_declare(struct peer *p, const envelope *request);
void tensors_handle_undeclare(struct peer *p, const envelope *request);
/* Answers the declares of the job whose pieces are all ready, or have failed. */
void tensors_check_waits(struct job *job);
void tensor_fail(struct tensor *tensor, const struct session *except, int code, const char *text);
struct tensor *tensor_create(struct job *job, uint32_t id, const char *name, uint32_t dtype,
                             uint64_t elements);
void tensor_destroy(struct tensor *tensor);
bool tensor_has_rank(const struct tensor *tensor, uint32_t rank);
uint64_t tensor_bytes(const struct tensor *tensor, uint64_t elements);
void tensor_row(const struct tensor *tensor, struct store_row *ret_row);
void piece_row(const struct tensor *tensor, const struct piece *piece, struct store_row *ret_row);
int tensor_restore(struct service *s, const struct store_tensor *row);
int piece_restore(struct service *s, const struct store_piece *row);
/* Protobuf form of the pieces that `wanted` accepts (NULL: all); free with free(). */
typedef bool (*piece_wanted_fn)(const struct piece *piece, const void *context);
WIRE(TensorRoute) *tensor_route(const struct tensor *tensor, piece_wanted_fn wanted,
                                const void *context);

/* --- placing.c --------------------------------------------------------------------------------- */

/* Gives lanes, pieces and tasks to new tensors, which are not the job's yet. */
int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err);
/* Gives lanes to the job's stranded tasks. -ENOSPC: no lane is up. Nothing is changed but
 * `ret_lanes`, an array of a lane for each of `tasks`. */
struct task {
    uint32_t id;
    uint64_t bytes;
    struct lane *lane;
};
int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err);
void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane);
void piece_detach(struct tensor *tensor, struct piece *piece);
/* Asks every lane to take its pieces that are PIECE_PLACED. */
void placing_send(struct job *job);
/* Tells the lane to forget pieces; count 0: the whole job. */
void placing_drop(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count);

/* --- recovery.c -------------------------------------------------------------------------------- */

/* The aggregator cannot write any more (fenced): its pieces are stranded, then placed anew. */
void recovery_aggregator_lost(struct aggregator *a);
/* Places what is stranded, of all jobs. */
void recovery_place_stranded(struct service *s);
/* What a rejoining aggregator holds against what it should hold. */
void recovery_reconcile(struct aggregator *a, const WIRE(AggregatorJoin) *join);
void recovery_send_routes(struct job *job, const struct session *to, piece_wanted_fn wanted,
                          const void *context);

/* --- tickets.c, service_view.c ------------------------------------------------------------------ */

void ticket_handle(struct peer *p, const envelope *request);
void view_handle_status(struct peer *p, const envelope *request);
void view_handle_jobs(struct peer *p, const envelope *request);

/* --- state_dir.c -------------------------------------------------------------------------------- */

int state_dir_create(const char *path, struct err *err);
/* -EBUSY, naming who holds it. The descriptor is the lock. */
int state_dir_lock(const char *path, int *ret_fd, struct err *err);

/* --- coordinator.c ------------------------------------------------------------------------------ */

struct service {
    struct coordinator_options options; /* strings owned */
    struct loop loop;
    struct store *store;
    struct store_service numbers;
    struct provisioner *provisioner;
    int lock_fd, spare_fd;
    struct listener tcp, local;
    struct source signals;
    struct timer drain_timer, stranded_timer;
    struct list peers, waits, jobs, aggregators;
    struct slot *slots;
    size_t slots_count;
    uint64_t next_id; /* of calls and waits */
    uint64_t started_ns;
    uint32_t boot_aggregators; /* of the store, not back yet */
    enum { SERVICE_UP, SERVICE_DRAINING, SERVICE_DOWN } phase;
    int signal;
    char node[HOST_NAME_MAX + 1];
    char endpoint_url[300];
};

struct coordinator {
    struct service service;
};

void service_put_numbers(struct service *s);
/* After an aggregator or a local process has gone: the end of a drain, perhaps. */
void service_check_drained(struct service *s);

#endif
