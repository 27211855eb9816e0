/* Rounds of a job with backup workers (W22), on one worker. round/round_end.c owns the state; the
 * job's lock protects all fields but `passed`. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_BACKUP_H
#define GRADPOOL_CLIENT_LIB_JOB_BACKUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_request;
struct job_sets;
struct gp_tensor;

enum backup_phase {
    BACKUP_OPEN, /* gradients are computed and pushed; no gp_round_end() is in progress */
    /* the leader lane has the announcement of the hidden tensor, and has not answered with a set */
    BACKUP_ANNOUNCED,
    /* like ANNOUNCED, but the leader lane has requested another gradient of the round */
    BACKUP_WANTED,
    BACKUP_AGAIN,   /* the script computes the other gradient */
    BACKUP_LANDING, /* this rank is in the set, and waits for results */
    BACKUP_TAKING,  /* this rank is not in the set, and fetches a result of every tensor */
    /* like TAKING, but between two gradients: this rank fetches the sums of the next round that it
     * has missed */
    BACKUP_NEXT,
};

/* Report of this rank to the leader lane, and the answer. A rank outside the set reports that it
 * has fetched results (LANDED); a rank in the set reports a gradient after the close (LATE,
 * LEFT). */
enum backup_report {
    REPORT_NONE, /* not all lanes have answered yet */
    REPORT_OWED, /* the record was not sent yet */
    REPORT_SENT, /* the leader lane has not answered yet */
    /* the leader lane has answered: this rank has to fetch the results of round `newest`, or has
     * done so */
    REPORT_ANSWERED,
    REPORT_LATE, /* a gradient was ready after the close, and its record was not sent yet */
    REPORT_LEFT, /* another gradient was given up after the close; its record was not sent yet */
};

struct backup_rounds {
    /* minimum number of gradients with which a round closes; 0: the job has no backup workers */
    uint32_t count;
    bool is_used; /* a thread is in gp_round_end(), gp_round_next() or gp_round_skip() */
    enum backup_phase phase;
    enum backup_report report;
    struct gp_tensor *leader;   /* the hidden tensor; NULL: not declared yet */
    struct gp_request *request; /* announcement of the hidden tensor; NULL: none is open */
    uint64_t held;              /* newest round of the job whose results this rank has */
    /* last round of which a result was copied to the caller in phase ANNOUNCED */
    uint64_t copied;
    uint64_t taking; /* TAKING: round whose results are being fetched */
    /* newest closed round that any lane has named. Without rules, a rank fetches the sums of every
     * round up to this one before its next gradient */
    uint64_t newest;
    struct job_sets *sets; /* recording and replay of sets; NULL: neither */
    /* newest closed round whose results this rank lacks (0: none), and BACKUP_WATCHED; the only
     * field that is read without the lock */
    _Atomic uint64_t passed;
};

/* bit of `passed`: gp_job_passed() was called, so the progress thread reads messages of lanes at
 * any time */
#define BACKUP_WATCHED (UINT64_C(1) << 63)

static inline uint64_t backup_passed(const struct backup_rounds *b)
{
    return atomic_load_explicit(&b->passed, memory_order_relaxed) & ~BACKUP_WATCHED;
}

static inline bool backup_is_watched(const struct backup_rounds *b)
{
    return atomic_load_explicit(&b->passed, memory_order_relaxed) & BACKUP_WATCHED;
}

/* Sets the round in `passed` (0: none), and keeps BACKUP_WATCHED. Called with the lock held. */
static inline void backup_pass(struct backup_rounds *b, uint64_t round)
{
    uint64_t bit = backup_is_watched(b) ? BACKUP_WATCHED : 0;
    atomic_store_explicit(&b->passed, round | bit, memory_order_relaxed);
}

#endif
