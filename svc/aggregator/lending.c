/* What workers lend to a lane, held against what their job and their tenant may. Counts are those
 * of each worker's last lending: only what seems too much is counted anew. README: A17. */
#include "svc/aggregator/lane_types.h"

#include "svc/base/log.h"
#include "svc/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One worker counts for no more: across hosts a region is as long as its worker says, and no sum
 * over a job may wrap. */
#define WORKER_LENT_BYTES_MAX (UINT64_MAX / LANE_WORKERS_MAX)

static struct lent count_before(const struct worker *w, uint32_t end)
{
    struct lent now = {0};
    for (uint32_t id = 0; w->conn && id < end; id++) {
        uint64_t bytes = fabric_region_bytes(w->conn, id);
        uint64_t room = WORKER_LENT_BYTES_MAX - now.bytes;
        now.bytes += bytes < room ? bytes : room;
        now.regions += bytes > 0;
        now.end = bytes > 0 ? id + 1 : now.end;
    }
    return now;
}

/* Since its last lending a worker can only have taken regions back. */
struct lent lending_count(const struct worker *w) { return count_before(w, w->lent.end); }

static void count(struct worker *w)
{
    struct lent now = count_before(w, FABRIC_REGIONS_MAX);
    w->job->lent.bytes += now.bytes - w->lent.bytes;
    w->job->lent.regions += now.regions - w->lent.regions;
    w->lent = now;
}

void lending_forget(struct worker *w) { count(w); }

static bool is_of_tenant(const struct lane_job *job, const struct lane_job *other)
{
    return strcmp(job->tenant, other->tenant) == 0;
}

static uint32_t tenant_regions(const struct lane_job *job)
{
    uint32_t regions = 0;
    list_for_each (node, &job->lane->jobs) {
        const struct lane_job *other = list_entry(node, struct lane_job, link);
        if (is_of_tenant(job, other))
            regions += other->lent.regions;
    }
    return regions;
}

static void count_tenant(const struct lane_job *job)
{
    list_for_each (node, &job->lane->jobs) {
        struct lane_job *other = list_entry(node, struct lane_job, link);
        for (uint32_t i = 0; is_of_tenant(job, other) && i < other->workers_count; i++)
            count(&other->workers[i]);
    }
}

static bool is_beyond(uint64_t has, uint64_t most) { return most > 0 && has > most; }

static bool is_too_much(const struct lane_job *job)
{
    return is_beyond(job->lent.bytes, job->lent_max.bytes_max) ||
           is_beyond(job->lent.regions, job->lent_max.regions_max) ||
           is_beyond(tenant_regions(job), job->lent_max.tenant_regions_max);
}

/* "job lends 5 GiB, may 4 GiB (--job-lent-max)"; short, so that all of it reaches the workers. */
static void say_why(const struct lane_job *job, char *text, size_t room)
{
    const struct lane_lent *most = &job->lent_max;
    char lends[32], may[32];
    if (is_beyond(job->lent.bytes, most->bytes_max))
        snprintf(text, room, "job lends %s, may %s (--job-lent-max)",
                 text_bytes(job->lent.bytes, lends, sizeof lends),
                 text_bytes(most->bytes_max, may, sizeof may));
    else if (is_beyond(job->lent.regions, most->regions_max))
        snprintf(text, room, "job lends %u regions, may %u (--job-regions-max)", job->lent.regions,
                 most->regions_max);
    else
        snprintf(text, room, "tenant lends %u regions, may %u (--tenant-regions-max)",
                 tenant_regions(job), most->tenant_regions_max);
}

/* What is mapped counts in full, touched or not: its owner may touch it at any time. */
void lending_check(struct worker *w)
{
    struct lane_job *job = w->job;
    char text[128];
    if (!w->conn || job->failure)
        return;
    count(w);
    if (!is_too_much(job))
        return;
    count_tenant(job);
    if (!is_too_much(job))
        return;
    say_why(job, text, sizeof text);
    log_warn("job '%s' rank %u (%s) is cut off from lane %u: %s", job->name, w->number, w->peer,
             job->lane->options.id, text);
    job_fail(job, -EDQUOT, "lane %u, with rank %u: %s", job->lane->options.id, w->number, text);
    fabric_disconnect(w->conn);
}
