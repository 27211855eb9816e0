/* Decides which jobs shrink and which grow. PURE: each change is applied to the caller's jobs
 * before the next decision. RULES.md: E1 to E5. */
#include "packer/growth/elastic.h"

#include <errno.h>

double elastic_rounds_per_s(const struct elastic_speed *speed, uint32_t workers, uint32_t servers)
{
    if (workers == 0 || servers == 0)
        return 0;
    double w = workers, s = servers;
    double round_s = speed->work / w + speed->fixed + speed->share * w / s + speed->per_worker * w +
                     speed->per_server * s;
    return round_s > 0 ? 1 / round_s : 0;
}

static double speed_with(const struct elastic_job *job, uint32_t workers, uint32_t servers)
{
    return elastic_rounds_per_s(&job->speed, workers, servers);
}

/* --- jobs shrink --- */

/* Returns the slots of `need` that are missing in `free`. */
static struct elastic_slots lack(const struct elastic_slots *free, struct elastic_slots need)
{
    return (struct elastic_slots){need.workers > free->workers ? need.workers - free->workers : 0,
                                  need.servers > free->servers ? need.servers - free->servers : 0};
}

static struct elastic_slots bundle_of(const struct elastic_job *job)
{
    return (struct elastic_slots){job->has.workers > job->least.workers,
                                  job->has.servers > job->least.servers};
}

static bool helps(struct elastic_slots bundle, struct elastic_slots lacking)
{
    return (bundle.workers && lacking.workers) || (bundle.servers && lacking.servers);
}

static bool may_give(const struct elastic_job *job, struct elastic_slots lacking, uint64_t now_ns)
{
    return !job->is_probing && job->held_until_ns <= now_ns && helps(bundle_of(job), lacking);
}

static double loss_per_slot(const struct elastic_job *job)
{
    struct elastic_slots bundle = bundle_of(job);
    double before = speed_with(job, job->has.workers, job->has.servers);
    double after =
        speed_with(job, job->has.workers - bundle.workers, job->has.servers - bundle.servers);
    return (before - after) / (bundle.workers + bundle.servers);
}

static size_t given_by(uint32_t tenant, const struct elastic_job *jobs, size_t count,
                       const struct elastic_change *changes, size_t changes_count)
{
    size_t given = 0;
    for (size_t i = 0; i < changes_count; i++)
        for (size_t k = 0; k < count; k++)
            given += jobs[k].id == changes[i].job && jobs[k].tenant == tenant;
    return given;
}

/* Returns the next job to release a slot. Jobs of the tenant with the fewest released slots come
 * first, then the job that loses the least speed; of equal jobs the first. NULL: no job may release
 * a slot. */
static struct elastic_job *find_victim(struct elastic_job *jobs, size_t count,
                                       struct elastic_slots lacking, uint64_t now_ns,
                                       const struct elastic_change *changes, size_t changes_count)
{
    struct elastic_job *victim = NULL;
    size_t victim_given = 0;
    double victim_loss = 0;
    for (size_t i = 0; i < count; i++) {
        if (!may_give(&jobs[i], lacking, now_ns))
            continue;
        size_t given = given_by(jobs[i].tenant, jobs, count, changes, changes_count);
        double loss = loss_per_slot(&jobs[i]);
        if (victim && (given > victim_given || (given == victim_given && loss >= victim_loss)))
            continue;
        victim = &jobs[i];
        victim_given = given;
        victim_loss = loss;
    }
    return victim;
}

static void take(struct elastic_job *job, struct elastic_slots *free, struct elastic_slots by)
{
    job->has.workers -= by.workers;
    job->has.servers -= by.servers;
    free->workers += by.workers;
    free->servers += by.servers;
}

static void give(struct elastic_job *job, struct elastic_slots *free, struct elastic_slots by)
{
    job->has.workers += by.workers;
    job->has.servers += by.servers;
    free->workers -= by.workers;
    free->servers -= by.servers;
}

static void undo(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                 const struct elastic_change *changes, size_t changes_count)
{
    for (size_t i = 0; i < changes_count; i++)
        for (size_t k = 0; k < count; k++)
            if (jobs[k].id == changes[i].job)
                give(&jobs[k], free, changes[i].by);
}

static void hold(struct elastic_job *jobs, size_t count, const struct elastic_change *changes,
                 size_t changes_count, uint64_t now_ns)
{
    for (size_t i = 0; i < changes_count; i++)
        for (size_t k = 0; k < count; k++)
            if (jobs[k].id == changes[i].job)
                jobs[k].held_until_ns = now_ns + ELASTIC_HOLD_NS;
}

int elastic_make_room(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                      struct elastic_slots need, uint64_t now_ns,
                      struct elastic_change *ret_changes, size_t room)
{
    size_t made = 0;
    for (;;) {
        struct elastic_slots lacking = lack(free, need);
        if (lacking.workers == 0 && lacking.servers == 0)
            break;
        struct elastic_job *victim = find_victim(jobs, count, lacking, now_ns, ret_changes, made);
        if (!victim || made == room) {
            undo(jobs, count, free, ret_changes, made);
            return victim ? -ENOBUFS : -ENOSPC;
        }
        ret_changes[made] = (struct elastic_change){victim->id, bundle_of(victim)};
        take(victim, free, ret_changes[made++].by);
    }
    hold(jobs, count, ret_changes, made, now_ns);
    return (int)made;
}

/* --- jobs grow --- */

static bool lacks_least(const struct elastic_job *job, const struct elastic_slots *free,
                        struct elastic_slots *ret_by)
{
    bool worker = job->has.workers < job->least.workers && free->workers > 0;
    bool server = job->has.servers < job->least.servers && free->servers > 0;
    *ret_by = (struct elastic_slots){worker, server};
    return job->is_probing && (worker || server);
}

/* Returns the rounds per second that the job gains; 0: the change costs more rounds than the job
 * gains. */
static double gain_of(const struct elastic_job *job, struct elastic_slots by)
{
    double before = speed_with(job, job->has.workers, job->has.servers);
    double gain =
        speed_with(job, job->has.workers + by.workers, job->has.servers + by.servers) - before;
    return gain > 0 && gain * job->stay_s > before * job->resize_s ? gain : 0;
}

struct growth {
    struct elastic_job *job;
    struct elastic_slots by;
    double gain;
};

static void consider(struct growth *best, struct elastic_job *job, struct elastic_slots by)
{
    double gain = gain_of(job, by);
    if (gain > best->gain)
        *best = (struct growth){job, by, gain};
}

static struct growth find_growth(struct elastic_job *jobs, size_t count,
                                 const struct elastic_slots *free, uint64_t now_ns)
{
    struct growth best = {0};
    for (size_t i = 0; i < count; i++) {
        struct elastic_slots by;
        if (lacks_least(&jobs[i], free, &by))
            return (struct growth){&jobs[i], by, 0};
    }
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].is_probing || jobs[i].held_until_ns > now_ns)
            continue;
        if (free->workers > 0)
            consider(&best, &jobs[i], (struct elastic_slots){1, 0});
        if (free->servers > 0)
            consider(&best, &jobs[i], (struct elastic_slots){0, 1});
    }
    return best;
}

size_t elastic_share_out(struct elastic_job *jobs, size_t count, struct elastic_slots *free,
                         uint64_t now_ns, struct elastic_change *ret_changes, size_t room)
{
    size_t made = 0;
    while (made < room) {
        struct growth next = find_growth(jobs, count, free, now_ns);
        if (!next.job)
            break;
        give(next.job, free, next.by);
        ret_changes[made++] = (struct elastic_change){next.job->id, next.by};
    }
    hold(jobs, count, ret_changes, made, now_ns);
    return made;
}
