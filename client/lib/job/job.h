/* A job at one of its workers. The lock guards all fields unless a comment says otherwise.
 * client/lib/README.md has the invariants (L1, ...). */
#ifndef GRADPOOL_CLIENT_LIB_JOB_JOB_H
#define GRADPOOL_CLIENT_LIB_JOB_JOB_H

#include "client/lib/job/hold.h"
#include "client/lib/report/progress.h"
#include "client/lib/report/recorder.h"
#include "client/lib/round/stall.h"
#include "client/lib/session/client.h"
#include "svc/fabric/engine.h"
#include "svc/fabric/slab.h"

#define JOB_NAME_BYTES_MAX 127
#define NAME_RESERVED "gradpool." /* prefix of the names of the library's own tensors */

struct link;
struct slot;

/* A snapshot or a restore whose time ran out: the next call ends it first (L31). */
struct unfinished {
    struct gp_request *request; /* NULL: none */
    void *agreement, *state;    /* memory of the job that it uses */
    uint32_t root, next;        /* next: the tensor to be pushed if all had agreed */
    bool has_next, restores;
};

struct gp_job {
    struct gp_client *client;
    unsigned generation;   /* generation.h */
    struct list node;      /* in client.jobs */
    struct list fork_node; /* fork.c */
    char name[JOB_NAME_BYTES_MAX + 1];
    char host[64];
    uint32_t rank, workers, id; /* workers: ranks that the job may have */
    bool is_elastic;            /* workers come and go (L20) */
    bool join_is_late;          /* the job had begun: the control thread's */
    gp_membership membership;
    Gradpool__Wire__JoinRequest join; /* the control thread's */
    struct control *control;
    pthread_mutex_t declaring; /* one declare or undeclare at a time; taken before the lock */
    pthread_mutex_t lock;
    struct engine engine;
    struct slabs slabs;
    uint64_t staged_bytes; /* bytes of staging memory of its tensors */
    struct err failure;    /* failure of the whole job; code 0: none */
    bool is_leaving;
    bool has_copies;        /* lanes' states are copied somewhere (W17) */
    bool keeps_copies;      /* workers store these copies (L28) */
    _Atomic uint32_t users; /* calls that wait, or are on their way in (L14) */
    struct list links, tensors;
    struct gp_tensor **by_name, **by_id; /* `buckets` each; grow with the tensors */
    uint32_t buckets, tensors_count, declared;
    struct slot *slots;
    uint32_t slots_count, free_slot;
    struct list requests, pool;
    uint32_t queued, unsent, connecting; /* reasons to drive while no thread waits (L4) */
    float loss;                          /* loss of this iteration; NaN: not given */
    struct link *spoke; /* lane whose word came last; NULL: none, or the link is gone (L24) */
    struct record_chosen chosen[2]; /* the last two sets, by round, for lanes that lack them */
    uint64_t stale;                 /* words and records that named nothing open */
    struct gp_tensor *barrier;
    struct gp_request *barrier_request; /* NULL unless one is open */
    bool is_in_barrier;
    struct unfinished unfinished; /* lock: none, the caller of snapshot and restore has it */
    bool is_reading;              /* a thread runs gp_job_read() */
    int read_fd;                  /* the connection of gp_job_read(); -1: none */
    struct hold hold;
    struct trace_ring *trace;      /* ring that records rounds; NULL: not recorded */
    struct recorder recorder;      /* the control thread's */
    struct job_timeline *timeline; /* written by this worker; NULL: none */
    struct progress progress;
    uint64_t stall_told_ns; /* when a stall was last logged; 0: none was */
    struct late late;
};

/* -EINVAL for NULL, -ECHILD in a forked child, with text. */
int job_check(const struct gp_job *job);
/* Ends what `users++` began: gp_job_leave() need not wait for this call any more. Called with the
 * lock, which is released. */
void job_end_use(struct gp_job *job);
/* Every request ends with this error, open ones now and later ones at once. The first failure of a
 * job stays. */
void job_break(struct gp_job *job, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
