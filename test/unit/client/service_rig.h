/* A scripted service for tests of the client: a coordinator that answers as it is told and lanes
 * that hold results, commits or tickets back when asked to. One thread runs it all; a test takes
 * the rig's lock to look or to change something. One job, named "job"; lanes over shared memory. */
#ifndef GRADPOOL_TEST_SERVICE_RIG_H
#define GRADPOOL_TEST_SERVICE_RIG_H

#include "svc/channel/channel.h"
#include "svc/fabric/fabric.h"
#include "svc/wire/record.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SCRIPT_LANES_MAX 3
#define SCRIPT_WORKERS_MAX 4
#define SCRIPT_PIECES_MAX 256
#define SCRIPT_LOG_MAX 4096
#define SCRIPT_CHANNELS_MAX 16
#define SCRIPT_HELD_MAX 64
#define SCRIPT_JOB_ID 7
#define SCRIPT_SESSION 100

struct script_worker {
    struct fabric_conn *conn;
    struct script_lane *lane;
    uint32_t rank;
};

struct script_lane {
    struct service_rig *rig;
    uint32_t number;
    struct fabric *fabric; /* NULL: dead */
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct script_worker workers[SCRIPT_WORKERS_MAX];
    uint32_t accepted; /* connections, ever */
};

struct script_piece {
    bool is_known;
    uint32_t lane, epoch, lost_epoch;
    uint64_t round; /* the open one */
    bool is_summed; /* its results are told, its commit is held */
    bool is_recovering;
    uint32_t spoken;                            /* a bit a rank */
    uint32_t entering;                          /* ranks that are to be told their round, and ... */
    uint32_t entering_word[SCRIPT_WORKERS_MAX]; /* ... under which word */
    struct record_ready said[SCRIPT_WORKERS_MAX][2];
};

struct script_tensor {
    char name[256];
    uint32_t id, dtype;
    uint64_t elements;
    uint32_t first_piece, pieces, undeclared;
};

/* What the lanes were told, in order. */
struct script_heard {
    uint32_t lane, rank;
    struct record_ready ready;
};

struct service_rig {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake_fd, listen_fd;
    const char *late_text;  /* knowledge of late ranks; NULL: the question is unknown there */
    uint64_t late_ranks[1]; /* of the last question */
    const char *host;       /* where the coordinator listens */
    uint16_t port;
    bool is_stopping;
    char endpoint[64];
    uint32_t workers;
    struct {
        struct channel *channel;
        uint32_t rank;
        bool has_joined;
    } channels[SCRIPT_CHANNELS_MAX];
    struct script_lane lanes[SCRIPT_LANES_MAX];
    struct script_piece pieces[SCRIPT_PIECES_MAX];
    struct script_tensor tensors[SCRIPT_PIECES_MAX];
    uint32_t pieces_count, tensors_count;
    struct script_heard heard[SCRIPT_LOG_MAX];
    uint32_t heard_count, leaves, lane_leaves, resumed, tickets, refused;
    uint64_t tickets_seen;
    uint64_t chosen_heard[SCRIPT_LANES_MAX]; /* rounds of sets passed on, a byte each */
    /* how it behaves */
    uint32_t pieces_per_tensor; /* spread over lanes_used */
    uint32_t lanes_used;
    bool holds_results, holds_commits, is_silent /* to questions */, ignores_declares;
    bool releases;            /* lanes let go of the pieces that move, and live on */
    bool is_mute;             /* pieces move, and nobody is told */
    uint32_t withheld;        /* bits of ranks that get no result and no word */
    uint32_t held_lanes;      /* bits of lanes that hold results back */
    uint64_t members;         /* bits of ranks whose pushes make rounds; 0: of all workers */
    uint32_t workers_max;     /* that the job may have; 0: its workers */
    uint32_t resizes, wanted; /* how often it was asked, for how many last */
    bool ignores_resizes, holds_entries;
    int held[SCRIPT_HELD_MAX]; /* what ranks have said of holds, of which, and why */
    uint64_t held_of[SCRIPT_HELD_MAX];
    int held_code;
    char held_why[256];
    uint32_t held_count;
    bool saving_is_late; /* who says that it saves was counted on before (L33) */
    int resize_failure;
    const char *resize_text;
    uint32_t refusals;      /* of tickets, still to come */
    uint32_t astray;        /* tickets that lead nowhere, still to be given */
    uint32_t not_now;       /* of requests for one, to be told to ask again */
    const char *stale_text; /* said to who resumes: it is in the job no more */
    int declare_failure;
    const char *declare_text;
    uint32_t version; /* of the greeting */
};

void script_start(struct service_rig *rig, uint32_t workers);
void script_stop(struct service_rig *rig);
void script_lock(struct service_rig *rig);
/* Also lets the thread see what was changed. */
void script_unlock(struct service_rig *rig);
/* Waits, with the lock, until somebody has changed something; fails the test after 10 s. */
void script_wait(struct service_rig *rig);

/* All with the lock. */
void script_drop_control(struct service_rig *rig);    /* kills the coordinator */
void script_restart_control(struct service_rig *rig); /* on the same port, at `host` */
void script_send_all(struct service_rig *rig, const envelope *message);
void script_kill_lane(struct service_rig *rig, uint32_t lane);
/* Moves all pieces of a lane to another, and says so; they recover there (W5). */
void script_move(struct service_rig *rig, uint32_t from, uint32_t to);
/* The pieces stay where they are, under the next epoch, for these ranks (L20). */
void script_regroup(struct service_rig *rig, uint64_t ranks);
/* Of `ranks`, `bytes` are sent; 0: as many as there should be. */
void script_tell_members(struct service_rig *rig, uint32_t version, uint32_t wanted, uint64_t ranks,
                         size_t bytes);
/* Tells the routes as they are, as after a resume. */
void script_tell_routes(struct service_rig *rig);
/* Of rank 0. */
void script_hold(struct service_rig *rig, uint64_t id, uint32_t scope, bool is_over);
void script_fail_job(struct service_rig *rig, int code, const char *text);
void script_fail_tensor(struct service_rig *rig, uint32_t tensor, int code, const char *text);

/* script_lane.c */
void script_lane_start(struct service_rig *rig, uint32_t number);
void script_lane_turn(struct script_lane *lane);
/* Goes on with what was held back. */
void script_lane_resume(struct service_rig *rig);
void script_lane_recover(struct service_rig *rig, struct script_piece *p);
/* Its round is over for who waits to enter. */
void script_lane_welcome(struct service_rig *rig, struct script_piece *p);
uint32_t script_members(const struct service_rig *rig);
bool script_has(const struct service_rig *rig, uint32_t rank);
void script_lane_say_error(struct service_rig *rig, uint32_t lane, uint32_t rank, uint32_t word,
                           int code, const char *text);
void script_lane_say_chosen(struct service_rig *rig, uint32_t lane, uint32_t rank, uint64_t round,
                            uint64_t ranks);
void script_lane_give_ticket(struct service_rig *rig, uint32_t lane, uint32_t rank);

#endif
