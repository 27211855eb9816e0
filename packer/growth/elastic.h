/* Decides which running jobs release workers and servers for a new job, and which jobs get free
 * workers and servers. PURE: no clock; the caller owns the jobs. RULES.md: E1 to E5. */
#ifndef GRADPOOL_PACKER_GROWTH_ELASTIC_H
#define GRADPOOL_PACKER_GROWTH_ELASTIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* time for which a changed job is not changed again */
#define ELASTIC_HOLD_NS UINT64_C(30000000000)

/* Rounds per second with w workers and s servers: 1 / (work/w + fixed + share*w/s + per_worker*w +
 * per_server*s). No coefficient is negative (E1). */
struct elastic_speed {
    double work, fixed, share, per_worker, per_server;
};
double elastic_rounds_per_s(const struct elastic_speed *speed, uint32_t workers, uint32_t servers);

struct elastic_slots {
    uint32_t workers, servers;
};

struct elastic_job {
    uint32_t id, tenant;
    /* the job waits for its first report: it releases no slot, and gets its `least` slots first */
    bool is_probing;
    struct elastic_slots has, least;
    struct elastic_speed speed;
    /* the job is not changed before this time; each change sets the field to the time of the change
     * plus ELASTIC_HOLD_NS */
    uint64_t held_until_ns;
    double stay_s;   /* expected time until the job ends */
    double resize_s; /* duration of a change, in which the job completes no rounds */
};

/* One worker, one server, or one of each, that a job releases or gets. */
struct elastic_change {
    uint32_t job;
    struct elastic_slots by;
};

/* Removes slots from running jobs until `free` contains `need`. Each change is applied to `jobs`
 * and `free`, and appended to `ret_changes`. Returns the number of changes; 0: the needed slots
 * were free. -ENOSPC: the running jobs cannot release enough, so the new job has to wait; -ENOBUFS:
 * more changes than `room`. After an error `jobs` and `free` are unchanged. Cost: in proportion to
 * jobs times changes. */
int elastic_make_room(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                      struct elastic_slots need, uint64_t now_ns,
                      struct elastic_change *ret_changes, size_t room);

/* Gives free slots to jobs, one worker or server at a time, until no job would gain from another
 * worker or server, or `room` changes were made. Applies and appends changes as elastic_make_room()
 * does. Returns their number. */
size_t elastic_share_out(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                         uint64_t now_ns, struct elastic_change *ret_changes, size_t room);

#endif
