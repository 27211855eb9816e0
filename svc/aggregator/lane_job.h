/* A job on a lane, its tickets and connections (job.c), for the files of this folder only. */
#ifndef GRADPOOL_AGGREGATOR_LANE_JOB_H
#define GRADPOOL_AGGREGATOR_LANE_JOB_H

#include "svc/aggregator/line.h"
#include "svc/fabric/fabric.h"
#include "svc/fabric/group.h"
#include "svc/wire/record.h"

#include <stdbool.h>
#include <stdint.h>

#define LANE_NAME_BYTES 128

/* Jobs share a lane by tenant first (A77). */
struct lane_tenant {
    struct list link; /* in lane.tenants */
    char name[LANE_NAME_BYTES];
    size_t jobs_count;
    struct line_entry turn;    /* in lane.running while the next is not empty */
    struct line running;       /* its jobs that can use the core now */
    struct fabric_group group; /* of its connections */
};

struct lane;
struct lane_job;
enum worker_state {
    WORKER_ABSENT,
    WORKER_OPEN,
    WORKER_LEFT,
    WORKER_LOST,
    WORKER_AWAY, /* its connection was lost, and another may follow (A70) */
};
struct worker;

/* Ends of a worker's connections, one after the other (A70). */
struct breaks {
    uint64_t since_ns; /* when the first of these was */
    uint32_t count;
    int error;         /* of the last one */
    uint64_t until_ns; /* AWAY: another connection is waited for so long */
};

struct worker *job_peer(struct lane_job *job, uint32_t number); /* NULL: none, or no room */
struct lane_job *job_find(struct lane *lane, uint32_t id);
/* Arena memory of a job without pieces. */
size_t job_bytes(uint32_t workers);
int job_create(struct lane *lane, uint32_t id, const char *name, uint32_t workers,
               struct lane_job **ret_job);
/* Frees it once no operation touches its memory any more; called again after each completion. */
void job_release(struct lane_job *job);
void job_fail(struct lane_job *job, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Something can be done for it now: it waits for its turn (lane_policy.c). */
void job_wake(struct lane_job *job);
int job_grant(struct lane_job *job, const struct record_connect *ticket);
/* Takes the grant that matches whole, once: -EACCES when there is none. */
int job_redeem(struct lane_job *job, const struct record_connect *ticket);
void worker_open(struct worker *w, struct fabric *fabric, struct fabric_conn *conn);
void worker_close(struct worker *w, enum worker_state state);
/* An orderly goodbye: rounds that wait for it end with an error. */
void worker_leave(struct worker *w, bool after_failure);
void worker_drop_payload(struct worker *w); /* gives the receive back that is held */

#endif
