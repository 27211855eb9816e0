/* A scripted service for tests of the client: a coordinator with fixed answers, and lanes that can
 * delay results, commits or tickets. One thread runs the whole service. A test locks the rig to
 * read or change its state. There is one job, named "job", and lanes use shared memory. */
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
    /* the lane has dropped the job, and closes the connection at the next record */
    bool is_dropped;
};

struct script_lane {
    struct service_rig *rig;
    uint32_t number;
    struct fabric *fabric; /* NULL: the lane is dead */
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct script_worker workers[SCRIPT_WORKERS_MAX];
    uint32_t accepted; /* number of connections so far */
};

struct script_piece {
    bool is_known;
    uint32_t lane, epoch, lost_epoch;
    uint64_t round; /* open round */
    bool is_summed; /* results are sent, but the commit is delayed */
    bool is_recovering;
    uint32_t spoken;   /* bit set of ranks that have reported a standing */
    uint32_t entering; /* bit set of ranks that wait for the number of their first round */
    uint32_t entering_word[SCRIPT_WORKERS_MAX]; /* word of the answer to each entering rank */
    struct record_ready said[SCRIPT_WORKERS_MAX][2];
};

struct script_tensor {
    char name[256];
    uint32_t id, dtype;
    uint64_t elements;
    uint32_t first_piece, pieces, undeclared;
};

/* An announcement that the lanes have received. The list is in order of arrival. */
struct script_heard {
    uint32_t lane, rank;
    struct record_ready ready;
};

#define SCRIPT_TABLES_MAX 4
#define SCRIPT_TABLE_RECORDS_MAX 8192
#define SCRIPT_TABLE_SALT UINT64_C(0x7ab1e)

struct script_table {
    char name[256];
    uint32_t number, shards, dim;
    uint64_t keys_pushed; /* in all requests */
    double pushed;        /* sum of key x first value of its gradient, over all pushes */
};

/* A record about tables that the lanes have received. The list is in order of arrival. */
struct script_table_record {
    uint32_t lane, rank;
    bool is_open; /* ROWS without an answer */
    union {
        uint8_t kind;
        struct record_rows rows;
        struct record_clock clock;
        struct record_query query;
    };
};

/* Tables of the job. The first element of a row is key + clock / 1024, and each other element i is
 * -i. */
struct script_tables {
    struct script_table tables[SCRIPT_TABLES_MAX];
    uint32_t count;
    struct script_table_record records[SCRIPT_TABLE_RECORDS_MAX];
    uint32_t records_count;
    uint64_t ended[SCRIPT_LANES_MAX][SCRIPT_WORKERS_MAX]; /* last ended clock of each rank */
    /* settings: lanes answer no request; number of the first lane with shards; number of lanes */
    bool holds_answers;
    uint32_t first_lane, lanes;
};

struct service_rig {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake_fd, listen_fd;
    /* text about late ranks; NULL: the rig acts like a coordinator that does not know the request
     * for this text */
    const char *late_text;
    uint64_t late_ranks[1]; /* ranks named in the last request for the text about late ranks */
    const char *host;       /* host on which the coordinator listens */
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
    /* fields of the BackupSpec of the last join: rule, k, least, absence, lag, gradients, rate; 0:
     * no spec */
    uint32_t backup[7];
    uint32_t heard_count, leaves, lane_leaves, resumed, tickets, refused;
    uint32_t settled_count; /* number of tensors in the last leave */
    uint64_t settled_round; /* last round of the first tensor in the last leave */
    uint64_t tickets_seen;
    /* rounds named by the CHOSEN messages that the lanes received, one byte for each round */
    uint64_t chosen_heard[SCRIPT_LANES_MAX];
    /* settings of the rig's behaviour */
    uint32_t pieces_per_tensor; /* distributed over lanes_used */
    uint32_t lanes_used;
    /* is_silent: the coordinator answers no request for the text about late ranks. */
    bool holds_results, holds_commits, is_silent, ignores_declares;
    bool releases;            /* lanes release moving pieces, and continue to run */
    bool is_mute;             /* pieces move, but workers receive no message */
    uint32_t withheld;        /* bit set of ranks to which lanes send neither result nor word */
    uint32_t held_lanes;      /* bit set of lanes that delay results */
    uint64_t members;         /* bit set of ranks that take part in a round; 0: all workers */
    uint32_t workers_max;     /* maximum number of workers of the job; 0: `workers` */
    uint32_t resizes, wanted; /* number of resize requests, and the size in the last one */
    bool ignores_resizes, holds_entries;
    uint32_t entries; /* number of requests of late workers to enter */
    /* reported states of holds, with the number of each hold and the last error code */
    int held[SCRIPT_HELD_MAX];
    uint64_t held_of[SCRIPT_HELD_MAX];
    int held_code;
    char held_why[256];
    uint32_t held_count;
    bool saving_is_late; /* the rig refuses a rank's report that it saves, with "too late" (L33) */
    int resize_failure;
    const char *resize_text;
    uint32_t refusals;      /* number of ticket requests that will be refused */
    uint32_t astray;        /* number of tickets that will contain a wrong address */
    const char *astray_ofi; /* network address in these wrong tickets; NULL: none */
    int ticket_failure;     /* error of each request for a ticket; 0: none */
    uint32_t not_now;       /* number of ticket requests that are refused with EAGAIN */
    const char *stale_text; /* text for a resuming rank that is no longer in the job */
    int declare_failure;
    const char *declare_text;
    struct script_tables tables;
    uint32_t version; /* version number in the greeting */
};

void script_start(struct service_rig *rig, uint32_t workers);
void script_stop(struct service_rig *rig);
void script_lock(struct service_rig *rig);
/* Unlocks the rig, and wakes its thread, which then reads the changes. */
void script_unlock(struct service_rig *rig);
/* Waits for a change. The caller has locked the rig. Fails the test after 10 s. */
void script_wait(struct service_rig *rig);

/* The caller of these functions holds the lock. */
void script_drop_control(struct service_rig *rig);    /* kills the coordinator */
void script_restart_control(struct service_rig *rig); /* uses the same port, on `host` */
void script_send_all(struct service_rig *rig, const envelope *message);
void script_kill_lane(struct service_rig *rig, uint32_t lane);
/* Moves all pieces of a lane to another lane, and informs the workers. The new lane recovers the
 * pieces (W5). */
void script_move(struct service_rig *rig, uint32_t from, uint32_t to);
/* Starts the next epoch of the pieces on the same lane, with these ranks as members of its rounds
 * (L20). */
void script_regroup(struct service_rig *rig, uint64_t ranks);
/* Sends a membership. Its field `ranks` has `bytes` bytes; 0: the length that fits the number of
 * ranks. */
void script_tell_members(struct service_rig *rig, uint32_t version, uint32_t wanted, uint64_t ranks,
                         size_t bytes);
/* Sends the current routes, as after a resume. */
void script_tell_routes(struct service_rig *rig);
/* Sends rank 0 a request to hold at the end of its iteration. */
void script_hold(struct service_rig *rig, uint64_t id, uint32_t scope, bool is_over);
void script_fail_job(struct service_rig *rig, int code, const char *text);
void script_fail_tensor(struct service_rig *rig, uint32_t tensor, int code, const char *text);

/* script_lane.c */
void script_lane_start(struct service_rig *rig, uint32_t number);
void script_lane_turn(struct script_lane *lane);
/* Sends the delayed messages. */
void script_lane_resume(struct service_rig *rig);
void script_lane_recover(struct service_rig *rig, struct script_piece *p);
/* Answers the entering ranks with the last completed round of the piece. */
void script_lane_welcome(struct service_rig *rig, struct script_piece *p);
uint32_t script_members(const struct service_rig *rig);
bool script_has(const struct service_rig *rig, uint32_t rank);
void script_lane_say_error(struct service_rig *rig, uint32_t lane, uint32_t rank, uint32_t word,
                           int code, const char *text);
void script_lane_say_chosen(struct service_rig *rig, uint32_t lane, uint32_t rank, uint64_t round,
                            uint64_t ranks);
/* Sends a rank the set of a round, with the number of gradients of each worker. */
void script_lane_say_counts(struct service_rig *rig, uint32_t lane, uint32_t rank, uint64_t round,
                            const uint8_t *counts);
/* Sends GO_ON: the rank's gradient with this number is wanted. */
void script_lane_say_go_on(struct service_rig *rig, uint32_t lane, uint32_t rank, uint64_t round,
                           uint8_t gradient);
void script_lane_say_closed(struct service_rig *rig, uint32_t lane, uint32_t rank, uint32_t word,
                            uint64_t round);
/* Sends bytes that form no valid record. */
void script_lane_babble(struct service_rig *rig, uint32_t lane, uint32_t rank);
void script_lane_give_ticket(struct service_rig *rig, uint32_t lane, uint32_t rank);

/* script_table.c */
/* Answers a declare of tables. */
void script_declare_tables(struct service_rig *rig, struct channel *channel,
                           const envelope *request);
/* Handles ROWS, CLOCK, and QUERY about a table. */
void script_table_hear(struct script_worker *w, const union record *record);
/* Answers the requests that are due. */
void script_table_answer(struct service_rig *rig);
void script_fail_table(struct service_rig *rig, uint32_t number, int code, const char *text);
/* Answers an open request with an error. */
void script_table_say_error(struct service_rig *rig, uint32_t record, int code, const char *text);

#endif
