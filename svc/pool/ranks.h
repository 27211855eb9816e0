/* Decisions of a pool about the ranks of its job: which rank starts, leaves or is ended, and when.
 * Pure: times are arguments, and the caller carries out the actions. One thread. */
#ifndef GRADPOOL_POOL_RANKS_H
#define GRADPOOL_POOL_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#define POOL_RANKS_MAX 768

enum rank_state {
    RANK_ABSENT,  /* no process, and none is due */
    RANK_WAITING, /* a process starts at due_ns */
    RANK_RUNNING,
    RANK_LEAVING, /* the worker should leave; its process is ended at due_ns */
    RANK_ASKED,   /* the pool's signal was forwarded; SIGTERM follows at due_ns */
    RANK_ENDING,  /* SIGTERM was sent; SIGKILL follows at due_ns */
    RANK_KILLED,  /* SIGKILL was sent */
    /* an adopted process has ended; the next look shows how; without a look, the rank fails at
     * due_ns */
    RANK_GONE,
    RANK_FAILED, /* no process exists, and none is started before the next resize */
};

/* Session of a rank, as the service shows it. */
enum rank_session {
    SEEN_NOT,
    SEEN_ENTERING, /* late worker that is in no round yet */
    SEEN_JOINED,
    SEEN_AWAY,
    SEEN_LEFT,
    SEEN_LOST,
};

/* State of the job in the service at one time. */
struct pool_look {
    uint64_t asked_ns; /* time before the request */
    bool has_job, is_elastic;
    bool has_ended;  /* if there is no job: `sessions` is from the end of the last job */
    uint32_t wanted; /* size that the last resize has set */
    uint64_t rounds; /* of the whole job */
    enum rank_session sessions[POOL_RANKS_MAX];
    /* a resize has removed the rank while the session existed */
    bool was_removed[POOL_RANKS_MAX];
    uint32_t
        pids[POOL_RANKS_MAX]; /* process of the session, in its own PID namespace; 0: unknown */
};

struct pool_rank {
    enum rank_state state;
    bool is_pending;      /* the signal of this state is to be sent */
    bool is_adopted;      /* the process was started by an earlier pool: its exit code is unknown */
    bool has_stepped;     /* the process has trained */
    bool was_leaving;     /* the process was asked to leave */
    bool has_joined;      /* a look has shown the process in the job */
    bool has_trained;     /* the newest process has ended with exit code 0 by itself */
    bool has_failed;      /* the newest process has failed */
    bool is_withheld;     /* the process does not run yet, for example in a queue of Slurm */
    uint64_t incarnation; /* number of the newest start of the rank; 0: never started */
    uint64_t ordered;     /* incarnation of the newest order to start; 0: none */
    uint64_t due_ns, started_ns, ended_ns;
    uint32_t failures; /* consecutive processes that have ended without a step */
    uint32_t deaths;   /* consecutive processes that have lived for a short time */
    uint64_t rounds;   /* rounds of the job at the last look that has shown the worker in the job */
    uint32_t refusals; /* consecutive starts that were refused, so no process exists */
    uint32_t looks;    /* looks that have shown a new round with the worker */
    /* number of rounds plus 1, at the first look after a resize has removed the rank and the rank
     * has left; 0: no such look */
    uint64_t rounds_left;
};

/* How a process has ended. */
enum rank_end {
    END_EXIT,   /* `number`: exit code */
    END_SIGNAL, /* `number`: signal */
    END_UNKNOWN,
};

enum rank_verdict {
    VERDICT_AS_ASKED, /* the process ended after a signal of the pool or a request to leave */
    VERDICT_TRAINED,
    VERDICT_AGAIN,   /* a new process starts after `pause_s` */
    VERDICT_LATER,   /* the next look decides */
    VERDICT_ALONE,   /* the rank has failed; the others train on */
    VERDICT_ALL,     /* the rank has failed, and all others are ended */
    VERDICT_AFTER,   /* the rank has failed after the end of the training */
    VERDICT_DROPPED, /* the training was over before this worker had trained */
    VERDICT_UNKNOWN, /* an adopted process has ended, and the service does not know how */
    VERDICT_ORDERS,  /* the worker has failed; the coordinator decides about its next process */
};

/* Effect of an order of the coordinator. */
enum rank_effect {
    EFFECT_NEW,   /* the order is carried out */
    EFFECT_KNOWN, /* the order was received before */
    EFFECT_ENDED, /* the process of this start has ended, or never existed */
};

enum pool_verb { POOL_NOTHING, POOL_START, POOL_SIGNAL, POOL_JUDGE };
struct pool_action {
    enum pool_verb verb;
    uint32_t rank;
    int signal;     /* POOL_SIGNAL */
    bool is_late;   /* POOL_SIGNAL: the rank has not left in time */
    uint64_t at_ns; /* POOL_NOTHING: time of the next action; UINT64_MAX: none */
};

struct pool_ranks {
    struct pool_rank ranks[POOL_RANKS_MAX];
    uint32_t most;     /* largest number of workers */
    uint32_t founders; /* number of workers at the beginning of the present job */
    uint32_t wanted;   /* ranks below this number are needed */
    uint64_t leave_ns; /* time in which a removed worker leaves by itself */
    bool is_ordered;   /* the coordinator orders starts and leaves, and judges the ends */
    bool is_over;      /* the coordinator has ended the job */
    bool has_trained;  /* a worker has ended its training */
    bool is_ending;    /* all workers are being ended */
    int code;          /* exit code of the first failure that ends the pool; 0: none */
    int last_code;     /* exit code of the last worker that has failed; 0: none */
};

void ranks_init(struct pool_ranks *p, uint32_t workers, uint32_t most, uint64_t leave_ns);
/* Schedules a first process for each needed rank without a process. */
void ranks_begin(struct pool_ranks *p, uint64_t now_ns);
/* Enters a running process. */
void ranks_started(struct pool_ranks *p, uint32_t rank, uint64_t incarnation, bool is_adopted,
                   uint64_t now_ns);
/* Stores whether the process of a started rank runs. A process that does not run yet gets no leave
 * time: if the rank has to leave, the process is ended at once. */
void ranks_runs(struct pool_ranks *p, uint32_t rank, bool is_running, uint64_t now_ns);
/* Called when the start of the rank was refused, so no process exists. The start is tried again
 * after 5, 10, 20, 40 or 60 s. A refusal does not count as a failure. Returns the pause in seconds;
 * 0: the rank was being ended, so the caller calls ranks_ended(). */
uint32_t ranks_put_off(struct pool_ranks *p, uint32_t rank, uint64_t now_ns);
/* Compares the ranks with the present state of the job. After a change of the job's size, ranks
 * start or leave. Returns whether the size has changed. */
bool ranks_looked(struct pool_ranks *p, const struct pool_look *look, uint64_t now_ns);
/* Called after an adoption: schedules a process for each needed rank without a process, except
 * ranks that have left the job. If a rank has left without a resize, the training is over, and no
 * rank starts. `look`: the argument of the last ranks_looked(). */
void ranks_adopted(struct pool_ranks *p, const struct pool_look *look, uint64_t now_ns);
/* Judges the end of a process. `ret_pause_s`: pause before the next start, set for
 * VERDICT_AGAIN. */
enum rank_verdict ranks_ended(struct pool_ranks *p, uint32_t rank, enum rank_end end, int number,
                              uint64_t now_ns, uint32_t *ret_pause_s);
/* Judges the end of an adopted process, for POOL_JUDGE. `look`: requested after this end; NULL: the
 * service did not answer in time. VERDICT_LATER: a later look decides. */
enum rank_verdict ranks_judge(struct pool_ranks *p, uint32_t rank, const struct pool_look *look,
                              uint64_t now_ns, uint32_t *ret_pause_s);
/* Judges a rank whose program cannot be executed. `code`: exit code for this failure. */
enum rank_verdict ranks_refused(struct pool_ranks *p, uint32_t rank, int code, uint64_t now_ns);
/* Forwards a signal to all workers, or with a further signal begins the next step of their end. */
void ranks_stop(struct pool_ranks *p, int code, uint64_t now_ns);
/* --- orders of the coordinator, for a pool with `is_ordered` --- */

/* Enters an order to start. The new process starts after the rank's present process has ended.
 * `ret_pause_s`: pause before the start; 0 if no process of the rank has failed. */
enum rank_effect ranks_order_start(struct pool_ranks *p, uint32_t rank, uint64_t incarnation,
                                   uint64_t now_ns, uint32_t *ret_pause_s);
/* Enters an order to leave. The worker leaves by itself within the leave time. `is_end`: the
 * process is ended at once instead. */
enum rank_effect ranks_order_leave(struct pool_ranks *p, uint32_t rank, uint64_t incarnation,
                                   bool is_end, uint64_t now_ns);
/* Enters the end of the job. The remaining processes are ended. `code`: 0 or a negative errno. */
void ranks_order_over(struct pool_ranks *p, int code);

/* Ends a job that the coordinator no longer knows. Returns whether the training is complete: no
 * process runs, none has failed, and one has ended with exit code 0 by itself. */
bool ranks_order_forgotten(struct pool_ranks *p);

/* Returns the next action. The state changes as if the action were already done, so the caller has
 * to carry out the action. Called repeatedly, until the action is POOL_NOTHING. */
struct pool_action ranks_next(struct pool_ranks *p, int forwarded, uint64_t now_ns);

bool ranks_is_alive(const struct pool_rank *rank);
/* Returns whether a process runs or is due, or the end of a process is not judged yet. */
bool ranks_have_workers(const struct pool_ranks *p);
/* Returns whether the pool may end: no process runs or is due, and a coordinator that gives orders
 * has ended the job, or all workers were being ended. */
bool ranks_are_over(const struct pool_ranks *p);
const char *rank_state_name(enum rank_state state);

#endif
