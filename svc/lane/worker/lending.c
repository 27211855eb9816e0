/* Memory that workers lend to a lane. This file compares the lent memory with the limits of job and
 * tenant, and with the tenant's share of the process. The count of a worker is updated only when
 * the worker lends a region. If the counts exceed a limit, all workers are counted again. RULES.md:
 * A17, A76. */
#include "svc/lane/worker/lending.h"

#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/memory/shares.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Maximum bytes that are counted for one worker. Over a network, a worker may claim any length for
 * a region, and sums over a job must not overflow. */
#define WORKER_LENT_BYTES_MAX (UINT64_MAX / LANE_WORKERS_MAX)
/* Descriptors of a connection. shm: socket, process and eventfd. ofi: a socket and a descriptor of
 * the provider. */
#define DESCRIPTORS_SHM 3
#define DESCRIPTORS_OFI 2

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

/* Counts only the regions with numbers below `end`. Since its last lending a worker can only have
 * removed regions, so no region has a higher number. */
struct lent lending_count(const struct worker *w) { return count_before(w, w->lending.lent.end); }

static void count(struct worker *w)
{
    struct lent now = count_before(w, FABRIC_REGIONS_MAX);
    const char *tenant = w->job->tenant;
    uint64_t before_bytes = w->lending.lent.bytes + w->lending.promised.bytes;
    uint32_t before_regions = w->lending.lent.regions + w->lending.promised.regions;
    /* the stored flag is used, because fabric_maps() must not be called for a fabric that may be
     * closed */
    if (w->lending.is_mapped) {
        shares_add(tenant, SHARE_LENT, (int64_t)(now.bytes - before_bytes));
        shares_add(tenant, SHARE_MAPPINGS, (int64_t)now.regions - before_regions);
    }
    w->lending.promised = (struct lent){0};
    w->job->lent.bytes += now.bytes - w->lending.lent.bytes;
    w->job->lent.regions += now.regions - w->lending.lent.regions;
    w->lending.lent = now;
}

void lending_forget(struct worker *w) { count(w); }

static bool is_of_tenant(const struct lane_job *job, const struct lane_job *other)
{
    return strcmp(job->tenant, other->tenant) == 0;
}

static uint32_t tenant_regions(const struct lane_job *job)
{
    uint32_t regions = 0;
    list_for_each_entry (const struct lane_job, other, &job->lane->jobs, link)
        if (is_of_tenant(job, other))
            regions += other->lent.regions;
    return regions;
}

static void count_tenant(const struct lane_job *job)
{
    list_for_each_entry (struct lane_job, other, &job->lane->jobs, link) {
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

/* Writes a text such as "job lends 5 GiB, may 4 GiB (--job-lent-max)". The text is short, because a
 * record to a worker has few bytes for it. */
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

/* ---- the tenant's share of this process ---- */

static bool exceeds_quota(const struct lane_job *job, uint64_t bytes)
{
    uint64_t most = job->lent_max.tenant_bytes_max;
    return most > 0 && (bytes > most || shares_used(job->tenant, SHARE_LENT) > most - bytes);
}

/* Returns whether the worker may lend more. Regions whose mapping is in progress are also counted,
 * because several lanes check at the same time. */
int lending_may(void *context, uint64_t bytes)
{
    struct worker *w = context;
    const struct lane_lent *most = &w->job->lent_max;
    const char *tenant = w->job->tenant;
    if (worker_is_holder(w))
        return 0;
    if (exceeds_quota(w->job, bytes))
        count_tenant(w->job);
    if (exceeds_quota(w->job, bytes) ||
        !shares_allow(tenant, most->has_others, SHARE_LENT, bytes) ||
        !shares_allow(tenant, most->has_others, SHARE_MAPPINGS, 1)) {
        w->lending.refused_bytes = bytes;
        return -EDQUOT;
    }
    w->lending.promised.bytes += bytes;
    w->lending.promised.regions++;
    shares_add(tenant, SHARE_LENT, (int64_t)bytes);
    shares_add(tenant, SHARE_MAPPINGS, 1);
    return 0;
}

static int connection_descriptors(const struct fabric *fabric)
{
    const char *kind = fabric_kind(fabric);
    if (strcmp(kind, "shm") == 0)
        return DESCRIPTORS_SHM;
    return strcmp(kind, "ofi") == 0 ? DESCRIPTORS_OFI : 0;
}

int lending_connect(struct worker *w, const struct fabric *fabric)
{
    const struct lane_lent *most = &w->job->lent_max;
    int descriptors = connection_descriptors(fabric);
    if (!shares_allow(w->job->tenant, most->has_others, SHARE_DESCRIPTORS, (uint64_t)descriptors))
        return -EDQUOT;
    shares_add(w->job->tenant, SHARE_DESCRIPTORS, descriptors);
    w->lending.descriptors = descriptors;
    w->lending.is_mapped = strcmp(fabric_kind(fabric), "shm") == 0;
    return 0;
}

void lending_disconnect(struct worker *w)
{
    shares_add(w->job->tenant, SHARE_DESCRIPTORS, -w->lending.descriptors);
    w->lending.descriptors = 0;
    w->lending.is_mapped = false;
}

void lending_refused(struct worker *w)
{
    struct lane_job *job = w->job;
    const struct lane_lent *most = &job->lent_max;
    char more[32], may[32], text[192];
    uint64_t own = shares_most(SHARE_LENT) / (most->has_others ? 2 : 1);
    bool is_quota = most->tenant_bytes_max > 0 && most->tenant_bytes_max < own;
    text_bytes(w->lending.refused_bytes, more, sizeof more);
    text_bytes(is_quota ? most->tenant_bytes_max : own, may, sizeof may);
    snprintf(text, sizeof text,
             "the tenant may lend %s to this aggregator, and %s more exceed that; lend less, or %s",
             may, more, is_quota ? "raise --tenant-lent-max" : "add aggregators");
    log_warn("job '%s' rank %u (%s): lane %u closed the connection: %s", job->name, w->number,
             w->peer, job->lane->options.id, text);
    job_fail(job, -EDQUOT, "lane %u, rank %u: %s", job->lane->options.id, w->number, text);
}

/* Checks the limits. A mapped region counts with its full length, because its owner may write to
 * any part of the region at any time. */
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
    log_warn("job '%s' rank %u (%s): lane %u closed the connection: %s", job->name, w->number,
             w->peer, job->lane->options.id, text);
    job_fail(job, -EDQUOT, "lane %u, with rank %u: %s", job->lane->options.id, w->number, text);
    fabric_disconnect(w->conn);
}
