/* A job on one of its workers. The lock protects all fields, unless a comment names another owner.
 * client/lib/README.md has the invariants (L1, ...). */
#ifndef GRADPOOL_CLIENT_LIB_JOB_JOB_H
#define GRADPOOL_CLIENT_LIB_JOB_JOB_H

#include "client/lib/job/backup.h"
#include "client/lib/job/hold.h"
#include "client/lib/report/progress.h"
#include "client/lib/report/recorder.h"
#include "client/lib/round/stall.h"
#include "client/lib/session/client.h"
#include "svc/base/hash.h"
#include "svc/fabric/engine.h"
#include "svc/fabric/slab.h"

#define JOB_NAME_BYTES_MAX 127
/* prefix in the names of tensors that the library itself declares */
#define NAME_RESERVED "gradpool."

struct entry;
struct job_steps;
struct job_tables;
struct link;
struct slot;

/* A snapshot or restore that has timed out. The next snapshot or restore first ends the unfinished
 * one (L31). */
struct unfinished {
    struct gp_request *request; /* the request of the unfinished round; NULL: none */
    void *agreement, *state;    /* memory of the job that the call uses */
    /* next: number of the tensor that the call pushes after the agreement of all ranks; 0: no
     * tensor */
    uint32_t root, next;
    bool restores;
};

struct gp_job {
    struct gp_client *client;
    struct list node;      /* node in client.jobs */
    struct list fork_node; /* node in the list of fork.c */
    char name[JOB_NAME_BYTES_MAX + 1];
    char host[64];
    uint32_t rank, workers, id; /* workers: maximum number of ranks in the job */
    bool is_elastic;            /* workers may join and leave (L20) */
    /* the job had begun before this join; owned by the control thread */
    bool join_is_late;
    gp_membership membership;
    Gradpool__Wire__JoinRequest join; /* request with which the control thread joins */
    /* a field of `join` points here; unused without backup workers */
    Gradpool__Wire__BackupSpec join_backup;
    struct control *control;
    /* permits one declare or undeclare at a time; locked before `lock` */
    pthread_mutex_t declaring;
    pthread_mutex_t lock;
    struct engine engine;
    struct slabs slabs;
    uint64_t staged_bytes; /* bytes of staging memory of all tensors */
    struct err failure;    /* failure of the whole job; code 0: none */
    bool is_leaving;
    bool has_copies;        /* whether states of lanes have copies (W17) */
    bool keeps_copies;      /* whether workers store these copies (L28) */
    _Atomic uint32_t users; /* number of calls that wait or are going to wait (L14) */
    struct list links, tensors;
    struct hash_table by_name, by_id; /* tensors; by_id has only tensors with a route */
    uint32_t declared;
    struct slot *slots;
    uint32_t slots_count, free_slot;
    struct list requests, pool;
    /* reasons to drive the engine while no thread waits: numbers of queued pushes, unsent records,
     * and connections that open or close (L4) */
    uint32_t queued, unsent, connecting;
    float loss; /* loss of this iteration; NaN: not set */
    /* link over which the newest word, COMMIT or CLOSED arrived, which is charged for the time of a
     * wait; NULL: none has arrived, or the link was freed (L24) */
    struct link *spoke;
    /* the two newest sets of ranks, kept to be forwarded to lanes; index: lowest bit of the
     * round */
    struct record_chosen chosen[2];
    uint64_t stale; /* number of received words and records that match no open round */
    struct gp_tensor *barrier;
    struct gp_request *barrier_request; /* NULL: no barrier is open */
    bool is_in_barrier;
    struct backup_rounds backup;
    struct job_steps *steps;   /* weight, deal and step records; NULL: weight 1, and no deal */
    struct job_tables *tables; /* NULL: no table was declared */
    /* used by snapshot and restore alone, so the lock does not protect this field */
    struct unfinished unfinished;
    bool is_reading; /* a thread is in gp_job_read(), gp_table_export() or gp_table_import() */
    int read_fd;     /* socket of that call; -1: none */
    struct hold hold;
    struct trace_ring *trace;      /* ring that records rounds; NULL: not recorded */
    struct recorder recorder;      /* owned by the control thread */
    struct job_timeline *timeline; /* timeline that this worker writes; NULL: none */
    struct progress progress;
    uint64_t stall_told_ns; /* time at which a stall was last logged; 0: never */
    struct late late;
    struct entry *entry; /* request of a late worker to enter; NULL: none was made */
};

/* Returns 0, or an error with text: -EINVAL for NULL, -ECHILD in a forked child. */
int job_check(const struct gp_job *job);
/* Ends a call on the job: decrements `users`, for which gp_job_leave() waits, and releases the
 * job's lock, which the caller holds. */
void job_end_use(struct gp_job *job);
/* Fails the job: all open and all later requests end with this error. Further failures are
 * ignored. */
void job_break(struct gp_job *job, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
