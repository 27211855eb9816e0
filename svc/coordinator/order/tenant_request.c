/* Requests of `gradpool tenant`: add, change, revoke and list. Owns nothing. Never logs a secret.
 * RULES.md: K10 to K12. */
#include "svc/coordinator/order/tenant_request.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TENANTS_MAX 4096

/* --- adding --- */

/* Tenants are managed over the Unix socket only, so that no key is sent over a network (K12). */
static bool may_manage(struct peer *p, uint64_t request)
{
    if (!p->is_local)
        peer_fail(p, request, -EPERM,
                  "tenants are managed on the coordinator's host only: run gradpool tenant there, "
                  "as the user of gradpool serve");
    return p->is_local;
}

static bool name_is_free(struct peer *p, uint64_t request, const char *name)
{
    const struct tenant *tenant = tenants_find(p->service, name);
    if (!key_tenant_is_valid(name))
        peer_fail(p, request, -EINVAL,
                  "a tenant's name has 1 to %d letters, digits, '.', '_' or '-'",
                  KEY_TENANT_BYTES_MAX);
    else if (tenant && !tenant->is_revoked)
        peer_fail(
            p, request, -EEXIST,
            "tenant %s has a key already; for a new key run `gradpool tenant revoke %s` first",
            name, name);
    else if (!tenant && tenants_count(p->service) >= TENANTS_MAX)
        peer_fail(p, request, -ENOSPC,
                  "the service has %d tenants, which is the maximum; use the key of another tenant",
                  TENANTS_MAX);
    else
        return true;
    return false;
}

static bool limit_is_valid(struct peer *p, uint64_t request, uint32_t ppm)
{
    if (ppm > LOSS_LIMIT_PPM_MAX)
        peer_fail(p, request, -EINVAL, "a loss limit of %u ppm; expected 1 to %u", ppm,
                  LOSS_LIMIT_PPM_MAX);
    return ppm <= LOSS_LIMIT_PPM_MAX;
}

/* Reads the limits. Returns 0, or -EINVAL for an unknown name or a wrong value. */
static int read_limits(struct service *s, struct limits *limits, WIRE(TenantLimit) *const *named,
                       size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        char text[ERR_TEXT_BYTES];
        struct err why;
        enum limit limit = limit_find(named[i]->name);
        if (limits_set_own(limits, &s->options->limits, limit, named[i]->value, &why) == 0)
            continue;
        snprintf(text, sizeof text, "%s", why.text);
        return err_set(err, -EINVAL, "--%.32s-max: %s", named[i]->name, text);
    }
    return 0;
}

static void reply_added(struct peer *p, uint64_t request, const struct key *key)
{
    char text[KEY_TEXT_BYTES];
    peer_reply(p, request, TENANT_ADD_REPLY, tenant_add_reply,
               .key = (char *)key_format(key, text));
    explicit_bzero(text, sizeof text);
}

/* The tenant is stored before it takes effect (K1). */
static int add(struct service *s, const WIRE(TenantAddRequest) * wanted, struct err *err)
{
    struct tenant added = {.is_operator = wanted->is_operator,
                           .added_s = (uint64_t)time(NULL),
                           .loss_limit_ppm = wanted->loss_limit_ppm,
                           .limits = s->options->limits};
    int error = read_limits(s, &added.limits, wanted->limits, wanted->n_limits, err);
    if (error < 0)
        return error;
    error = key_generate(wanted->tenant, &added.key);
    if (error < 0)
        return err_set(err, error, "no random numbers: %s", err_text(error));
    struct tenant *known = tenants_find(s, wanted->tenant);
    struct tenant *tenant = known ? known : tenant_create(s, wanted->tenant);
    if (!tenant)
        return err_set(err, -ENOMEM,
                       "gradpool serve has no memory for tenant %s; raise its memory limit",
                       wanted->tenant);
    error = tenant_keep(s, &added, err);
    if (error < 0) {
        if (!known)
            tenant_destroy(tenant);
        return error;
    }
    tenant->key = added.key;
    tenant->is_operator = added.is_operator;
    tenant->is_revoked = false;
    tenant->added_s = added.added_s;
    tenant->loss_limit_ppm = added.loss_limit_ppm;
    tenant_adopt_limits(tenant, &added.limits);
    key_forget(&added.key);
    return 0;
}

void tenant_handle_add(struct peer *p, const envelope *request)
{
    const WIRE(TenantAddRequest) *wanted = request->tenant_add_request;
    struct err err;
    if (!may_manage(p, request->id) || !name_is_free(p, request->id, wanted->tenant) ||
        !limit_is_valid(p, request->id, wanted->loss_limit_ppm))
        return;
    int error = add(p->service, wanted, &err);
    if (error < 0)
        return peer_fail(p, request->id, error, "%s", err.text);
    log_info("tenant %s was added%s", wanted->tenant, wanted->is_operator ? " as operator" : "");
    reply_added(p, request->id, &tenants_find(p->service, wanted->tenant)->key);
}

/* --- changing --- */

static struct tenant *find_active(struct peer *p, const envelope *request, const char *name)
{
    struct tenant *tenant = *name ? tenants_find(p->service, name) : NULL;
    if (tenant && !tenant->is_revoked)
        return tenant;
    peer_fail(p, request->id, -ENOENT,
              tenant ? "tenant %.64s is revoked already; run `gradpool tenant add` for a new key"
                     : "there is no tenant %.64s; see gradpool tenant list",
              name);
    return NULL;
}

/* Sends the new limits to lanes. If a limit is lowered, jobs keep the pieces that they have
 * (K13). */
static void tell_lanes(struct service *s, const struct tenant *tenant)
{
    list_for_each_entry (struct job, job, &s->jobs, link)
        if (job->tenant == tenant)
            telling_limits(job);
}

void tenant_handle_set(struct peer *p, const envelope *request)
{
    const WIRE(TenantSetRequest) *wanted = request->tenant_set_request;
    struct service *s = p->service;
    struct err err;
    if (!may_manage(p, request->id) || !limit_is_valid(p, request->id, wanted->loss_limit_ppm))
        return;
    struct tenant *tenant = find_active(p, request, wanted->tenant);
    if (!tenant)
        return;
    struct tenant before = *tenant;
    struct limits limits = tenant->limits;
    int error = read_limits(s, &limits, wanted->limits, wanted->n_limits, &err);
    if (error < 0)
        return peer_fail(p, request->id, error, "%s", err.text);
    tenant_adopt_limits(tenant, &limits);
    if (wanted->sets_loss_limit)
        tenant->loss_limit_ppm = wanted->loss_limit_ppm;
    if (tenant_keep(s, tenant, &err) < 0) {
        tenant_adopt_limits(tenant, &before.limits);
        tenant->loss_limit_ppm = before.loss_limit_ppm;
        return peer_fail(p, request->id, err.code, "%s", err.text);
    }
    log_info("the limits of tenant %s were changed", tenant->key.tenant);
    tell_lanes(s, tenant);
    peer_reply_done(p, request->id);
}

/* --- revoking --- */

static void end_jobs(struct service *s, const struct tenant *tenant)
{
    list_for_each_safe_entry (struct job, job, &s->jobs, link) {
        if (job->tenant != tenant)
            continue;
        jobs_fail(job, NULL, -EKEYREVOKED,
                  "the key of tenant %s was revoked; ask the operator for a new one",
                  tenant->key.tenant);
        jobs_end(job);
    }
}

static void end_connections(struct service *s, const struct tenant *tenant)
{
    list_for_each_safe_entry (struct peer, p, &s->door->peers, link) {
        if (p->tenant != tenant)
            continue;
        waits_cancel(p);
        peer_finish(p);
    }
}

void tenant_handle_revoke(struct peer *p, const envelope *request)
{
    const char *name = request->tenant_revoke_request->tenant;
    struct service *s = p->service;
    struct err err;
    if (!may_manage(p, request->id))
        return;
    struct tenant *tenant = find_active(p, request, name);
    if (!tenant)
        return;
    tenant->is_revoked = true;
    if (tenant_keep(s, tenant, &err) < 0) {
        tenant->is_revoked = false;
        return peer_fail(p, request->id, err.code, "%s", err.text);
    }
    log_info("tenant %s was revoked", name);
    s->on->service->tenant_is_revoked(s, tenant);
    end_jobs(s, tenant);
    end_connections(s, tenant);
    peer_reply_done(p, request->id);
}

void tenants_end_revoked(struct service *s)
{
    list_for_each_entry (const struct tenant, tenant, &s->door->tenants, link)
        if (tenant->is_revoked) {
            s->on->service->tenant_is_revoked(s, tenant);
            end_jobs(s, tenant);
        }
}

/* --- listing --- */

struct tenant_limits {
    WIRE(LimitUse) rows[LIMITS_OF_TENANT];
    WIRE(LimitUse) * pointers[LIMITS_OF_TENANT];
};

static void fill_limits(struct service *s, const struct tenant *tenant,
                        struct tenant_limits *limits)
{
    struct quota quota;
    quota_of_tenant(s, tenant, &quota);
    for (enum limit limit = 0; limit < LIMITS_OF_TENANT; limit++) {
        limits->rows[limit] = quota_row(&tenant->limits, limit, quota.used[limit]);
        limits->pointers[limit] = &limits->rows[limit];
    }
}

static void fill_view(struct service *s, const struct tenant *tenant, WIRE(TenantView) * view,
                      struct tenant_limits *limits)
{
    fill_limits(s, tenant, limits);
    *view = MESSAGE_PART(TenantView, tenant_view, .cpu_ns = tenant->party.cpu_ns,
                         .tenant = (char *)tenant->key.tenant, .is_operator = tenant->is_operator,
                         .is_revoked = tenant->is_revoked, .added_s = tenant->added_s,
                         .loss_limit_ppm = tenant->loss_limit_ppm, .limits = limits->pointers,
                         .n_limits = LIMITS_OF_TENANT);
    list_for_each (node, &s->jobs)
        view->jobs += list_entry(node, struct job, link)->tenant == tenant;
    list_for_each_entry (struct peer, p, &s->door->peers, link)
        view->connections += p->tenant == tenant;
}

void tenant_handle_list(struct peer *p, const envelope *request)
{
    struct service *s = p->service;
    if (!may_manage(p, request->id))
        return;
    size_t room = tenants_count(s) + 1, count = 0;
    _cleanup_free_ WIRE(TenantView) *views = calloc(room, sizeof *views);
    _cleanup_free_ WIRE(TenantView) **pointers = calloc(room, sizeof *pointers);
    _cleanup_free_ struct tenant_limits *limits = calloc(room, sizeof *limits);
    if (!views || !pointers || !limits)
        return peer_fail_memory(p, request->id);
    list_for_each_entry (const struct tenant, tenant, &s->door->tenants, link) {
        if (tenant == tenants_local(s))
            continue;
        fill_view(s, tenant, &views[count], &limits[count]);
        pointers[count] = &views[count];
        count++;
    }
    peer_reply(p, request->id, TENANTS_REPLY, tenants_reply, .tenants = pointers,
               .n_tenants = count);
}
