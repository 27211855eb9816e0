/* Which running job gives workers and servers to one that arrives, and which gets what a job that
 * ended leaves. PURE: no clock; the jobs are the caller's. README.md: E1 to E5. */
#ifndef GRADPOOL_PACKER_GROWTH_ELASTIC_H
#define GRADPOOL_PACKER_GROWTH_ELASTIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELASTIC_HOLD_NS UINT64_C(30000000000) /* after a change a job is left alone for so long */

/* Rounds a second with w workers and s servers: 1 / (work/w + fixed + share*w/s + per_worker*w +
 * per_server*s), none negative (E1). */
struct elastic_speed {
    double work, fixed, share, per_worker, per_server;
};
double elastic_rounds_per_s(const struct elastic_speed *speed, uint32_t workers, uint32_t servers);

struct elastic_slots {
    uint32_t workers, servers;
};

struct elastic_job {
    uint32_t id, tenant;
    bool is_probing; /* waits for early feedback: it gives nothing, and comes first to `least` */
    struct elastic_slots has, least;
    struct elastic_speed speed;
    uint64_t held_until_ns; /* it was changed lately (ELASTIC_HOLD_NS) */
    double stay_s;          /* how long it is expected to go on */
    double resize_s;        /* without rounds, when it is changed */
};

/* One worker, one server or one of each that a job gives or gets. */
struct elastic_change {
    uint32_t job;
    struct elastic_slots by;
};

/* Makes room for a job that needs `need` beside what is free: bundles are taken one at a time, and
 * entered in `jobs`, `free` and `ret_changes` in this order. Returns how many; 0: there is room.
 * -ENOSPC: the running jobs cannot give so much, the job has to wait; -ENOBUFS: `room` is too
 * small; then all is as it was. Cost: jobs times changes. */
int elastic_make_room(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                      struct elastic_slots need, uint64_t now_ns,
                      struct elastic_change *ret_changes, size_t room);

/* Gives what is free to jobs, one worker or server at a time, until nobody gains by it or `room`
 * is used up; entered as above. Returns how many. */
size_t elastic_share_out(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                         uint64_t now_ns, struct elastic_change *ret_changes, size_t room);

#endif
