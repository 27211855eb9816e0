/* Orders of the coordinator to a pool whose site has slots, and the pool's reports. A thread of its
 * own exchanges them: a request may wait for a service that does not answer, and the pool must
 * not. An order has no command, no path and no variable. */
#ifndef GRADPOOL_POOL_SITE_H
#define GRADPOOL_POOL_SITE_H

#include "svc/base/err.h"
#include "svc/pool/ranks.h"

#include <sys/types.h>

#define SITE_TEXT_BYTES 512

/* A pool and the job that it submits. */
struct site_terms {
    const char *site, *job, *study; /* `study`: "" for a job without a study */
    uint64_t pool;                  /* random number of the folder */
    uint32_t workers, workers_max;
    uint32_t followers; /* jobs of the study that the caller submits next */
    bool may_rest;      /* the job may rest, to make room for other jobs */
    bool is_new;        /* no worker of an earlier job of the folder runs */
};

enum site_event { SITE_NOTHING, SITE_STARTED, SITE_ENDED, SITE_WITHHELD, SITE_FAILED };

/* State of a rank's newest start. */
struct site_report {
    enum site_event event;
    uint32_t rank;
    uint64_t incarnation, identity; /* `identity`: that of the process `pid` */
    pid_t pid;
    enum rank_end end; /* SITE_ENDED: how, and its number */
    int number;
    char text[SITE_TEXT_BYTES]; /* SITE_WITHHELD, SITE_FAILED: reason for people */
};

/* SITE_FORGOTTEN: the coordinator no longer knows the job, so its last order was lost.
 * SITE_UNRESTED: the coordinator has refused that the job rests. */
enum site_verb {
    SITE_START,
    SITE_LEAVE,
    SITE_END,
    SITE_OVER,
    SITE_FORGOTTEN,
    SITE_RESTS,
    SITE_GOES_ON,
    SITE_UNRESTED,
};

struct site_order {
    enum site_verb verb;
    uint32_t rank, slot;
    uint32_t workers;     /* SITE_START: workers with which the job begins */
    uint32_t workers_max; /* SITE_START: most workers of the job */
    uint64_t incarnation;
    int code;                   /* SITE_OVER: 0 or a negative errno */
    char text[SITE_TEXT_BYTES]; /* SITE_END, SITE_OVER, SITE_FORGOTTEN, SITE_UNRESTED: reason */
};

/* Standing of the job's trial in its study: number of reached rungs, and the report at the last one
 * (lower is better; NaN is the worst). */
struct site_standing {
    uint32_t rung;
    double value;
};

/* Functions that send messages to the coordinator. The caller of pool_run() supplies them. They run
 * in one thread, may block for some seconds, and return 0 or a negative errno with a text. */
struct site_calls {
    /* Connects and joins with the workers that exist. A new pool ends earlier jobs of its folder.
     * `ret_has_job`: the coordinator knows the job. `ret_is_refused`: the service has refused the
     * pool, so another try would fail, too. -EEXIST: the service has another connection of a pool
     * in this folder; since the pool holds the lock of the folder, that connection ends soon. */
    int (*join)(void *context, const struct site_terms *terms, const struct site_report *workers,
                uint32_t count, bool *ret_has_job, bool *ret_is_refused, struct err *err);
    int (*submit)(void *context, const struct site_terms *terms, bool *ret_is_refused,
                  struct err *err);
    int (*withdraw)(void *context, const struct site_terms *terms, struct err *err);
    /* `ret_is_refused`: the service has answered, and the job does not rest. */
    int (*rest)(void *context, const struct site_terms *terms, bool rests, bool *ret_is_refused,
                struct err *err);
    int (*stand)(void *context, const struct site_terms *terms,
                 const struct site_standing *standing, struct err *err);
    int (*report)(void *context, const struct site_terms *terms, const struct site_report *reports,
                  uint32_t count, struct err *err);
    /* Returns the next order. -EAGAIN: none has arrived; fd() is readable after the next one. */
    int (*next)(void *context, const struct site_terms *terms, struct site_order *ret_order,
                struct err *err);
    int (*fd)(void *context);
    void (*close)(void *context);
};

struct site;

/* The texts of `terms`, `calls` and `context` outlive the process's threads. */
int site_create(const struct site_calls *calls, void *context, const struct site_terms *terms,
                struct site **ret_site, struct err *err);
/* Starts the thread, which ends with the process. Adopted workers were reported before. */
int site_begin(struct site *site, struct err *err);
/* Returns a descriptor that is readable after a change: an order, a connection, a sent report. */
int site_fd(const struct site *site);
/* Returns the next order, and false if there is none. */
bool site_take(struct site *site, struct site_order *ret_order);
/* Returns the result of the last attempt to reach the coordinator, and its text. 0: joined;
 * -EINPROGRESS: the first attempt has not ended. Makes site_fd() unreadable. */
int site_state(struct site *site, struct err *err);
/* Returns whether the service has refused the key of the pool. */
bool site_is_key_error(int error);
/* Replaces the report about the rank. It is sent until the coordinator has received it. */
void site_report(struct site *site, const struct site_report *report);
/* Sends the last report about the rank again, for an order about a start that has ended. If there
 * is none about this start, it has ended, and nobody knows how. A report about a newer start stays:
 * the coordinator has ordered that start, so it knows the end of this one. */
void site_report_again(struct site *site, uint32_t rank, uint64_t incarnation);
/* The user wants the job to rest, or to go on. */
void site_rest(struct site *site, bool rests);
/* Replaces the standing of the job's trial. It is sent, and sent again with each connection. */
void site_stand(struct site *site, const struct site_standing *standing);
/* The job is ended by this pool. */
void site_withdraw(struct site *site);
/* Returns whether the coordinator has everything, or is out of reach. */
bool site_is_settled(struct site *site);

#endif
