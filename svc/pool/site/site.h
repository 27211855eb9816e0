/* Orders of the coordinator to a pool whose site has slots, and the pool's reports. A separate
 * thread exchanges them, so that the pool does not wait for a service without an answer. An order
 * has no command, no path and no variable. */
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
    uint32_t followers; /* number of jobs that the study submits next */
    bool may_rest;      /* the job may rest, to make room for other jobs */
    bool is_new;        /* no worker of an earlier job of the folder runs */
};

enum site_event { SITE_NOTHING, SITE_STARTED, SITE_ENDED, SITE_WITHHELD, SITE_FAILED };

/* State of a rank's newest start. */
struct site_report {
    enum site_event event;
    uint32_t rank;
    uint64_t incarnation, identity; /* `identity`: identity of process `pid` */
    pid_t pid;
    enum rank_end end; /* SITE_ENDED: kind of the end; `number`: exit code or signal */
    int number;
    char text[SITE_TEXT_BYTES]; /* SITE_WITHHELD, SITE_FAILED: reason, as a text for people */
};

/* SITE_FORGOTTEN: the coordinator no longer knows the job, so its order to end the job was lost.
 * SITE_UNRESTED: the coordinator has refused to let the job rest. */
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
    uint32_t workers;     /* SITE_START: number of workers at the beginning of the job */
    uint32_t workers_max; /* SITE_START: largest number of workers of the job */
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
    /* Connects, and joins with the workers that exist. A new pool ends earlier jobs of its folder.
     * `ret_has_job`: the coordinator knows the job. `ret_is_refused`: the service has refused the
     * pool, so another try would fail, too. -EEXIST: the service still has a connection of another
     * pool in this folder. This pool holds the lock of the folder, so the other connection ends
     * soon. */
    int (*join)(void *context, const struct site_terms *terms, const struct site_report *workers,
                uint32_t count, bool *ret_has_job, bool *ret_is_refused, struct err *err);
    int (*submit)(void *context, const struct site_terms *terms, bool *ret_is_refused,
                  struct err *err);
    int (*withdraw)(void *context, const struct site_terms *terms, struct err *err);
    /* `ret_is_refused`: the service has refused the wish, so the rest of the job does not
     * change. */
    int (*rest)(void *context, const struct site_terms *terms, bool rests, bool *ret_is_refused,
                struct err *err);
    int (*stand)(void *context, const struct site_terms *terms,
                 const struct site_standing *standing, struct err *err);
    int (*report)(void *context, const struct site_terms *terms, const struct site_report *reports,
                  uint32_t count, struct err *err);
    /* Returns the next order. -EAGAIN: no order has arrived; the descriptor of fd() becomes
     * readable when the next order arrives. */
    int (*next)(void *context, const struct site_terms *terms, struct site_order *ret_order,
                struct err *err);
    int (*fd)(void *context);
    void (*close)(void *context);
};

struct site;

/* The texts of `terms`, and `calls` and `context`, have to exist until the process ends. */
int site_create(const struct site_calls *calls, void *context, const struct site_terms *terms,
                struct site **ret_site, struct err *err);
/* Starts the thread, which ends with the process. The caller has reported the adopted workers
 * before. */
int site_begin(struct site *site, struct err *err);
/* Returns a descriptor that is readable after a change: an order, a connection, a sent report. */
int site_fd(const struct site *site);
/* Returns the next order. Returns false if there is no order. */
bool site_take(struct site *site, struct site_order *ret_order);
/* Returns the result of the last attempt to connect and join, with its text. 0: the pool has
 * joined; -EINPROGRESS: the first attempt has not ended. Makes site_fd() unreadable. */
int site_state(struct site *site, struct err *err);
/* Returns whether the service has refused the key of the pool. */
bool site_is_key_error(int error);
/* Replaces the report about the rank. The thread sends the report until the coordinator has
 * received it. */
void site_report(struct site *site, const struct site_report *report);
/* Sends the last report about the rank again, because the coordinator has ordered something for a
 * start that has ended. If there is no report about the end of this start, sends a report with an
 * unknown end. If the last report is about a newer start, sends nothing: the coordinator has
 * ordered the newer start, so it knows the end of this one. */
void site_report_again(struct site *site, uint32_t rank, uint64_t incarnation);
/* Sends the user's wish that the job rests, or continues. */
void site_rest(struct site *site, bool rests);
/* Replaces the standing of the job's trial. The thread sends the standing now, and again after each
 * connect. */
void site_stand(struct site *site, const struct site_standing *standing);
/* Requests the end of the job from the coordinator. */
void site_withdraw(struct site *site);
/* Returns whether the coordinator has received all reports and the request to end the job, or is
 * not connected. */
bool site_is_settled(struct site *site);

#endif
