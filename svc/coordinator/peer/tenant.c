/* Tenants and their rows in the store. Owns struct tenant, which is freed only at the end of the
 * service. A revoked tenant stays in the list, so that a refusal can name the reason and the tenant
 * can receive a new key. Secrets are never logged (RULES.md: K10 to K12). */
#include "svc/coordinator/peer/tenant.h"

#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t tenant_cpu_percent(const struct tenant *tenant)
{
    return (uint32_t)tenant->limits.most[LIMIT_TENANT_CPU];
}

struct tenant *tenant_create(struct service *s, const char *name)
{
    struct tenant *tenant = calloc(1, sizeof *tenant);
    if (!tenant)
        return NULL;
    snprintf(tenant->key.tenant, sizeof tenant->key.tenant, "%s", name);
    tenant->limits = s->options->limits;
    tenant->limits.tenant = tenant->key.tenant;
    party_init(&tenant->party, PARTY_OTHERS, tenant_cpu_percent(tenant));
    list_append(&s->door->tenants, &tenant->link);
    return tenant;
}

void tenant_destroy(struct tenant *tenant)
{
    list_remove(&tenant->link);
    party_fini(&tenant->party);
    key_forget(&tenant->key);
    free(tenant);
}

int tenants_init(struct service *s) { return tenant_create(s, "") ? 0 : -ENOMEM; }

void tenants_destroy(struct service *s)
{
    list_for_each_safe (node, &s->door->tenants)
        tenant_destroy(list_entry(node, struct tenant, link));
}

struct tenant *tenants_local(struct service *s)
{
    return list_entry(list_first(&s->door->tenants), struct tenant, link);
}

struct tenant *tenants_find(struct service *s, const char *name)
{
    list_for_each_entry (struct tenant, tenant, &s->door->tenants, link)
        if (strcmp(tenant->key.tenant, name) == 0)
            return tenant;
    return NULL;
}

bool tenants_have_keys(struct service *s)
{
    list_for_each_entry (const struct tenant, tenant, &s->door->tenants, link)
        if (tenant != tenants_local(s) && !tenant->is_operator && !tenant->is_revoked)
            return true;
    return false;
}

size_t tenants_count(struct service *s)
{
    size_t count = 0;
    list_for_each (node, &s->door->tenants)
        count += node != &tenants_local(s)->link;
    return count;
}

bool tenants_has_one(const struct service *s)
{
    return s->door->tenants.next->next == &s->door->tenants;
}

const char *tenant_prefix(const struct tenant *tenant, char *buffer)
{
    bool is_local = tenant->key.tenant[0] == '\0';
    snprintf(buffer, TENANT_PREFIX_BYTES, "%s%s", tenant->key.tenant, is_local ? "" : "/");
    return buffer;
}

static void tenant_row(const struct tenant *tenant, char *secret, char *limits,
                       struct store_row *ret_row)
{
    limits_write_own(&tenant->limits, limits, LIMITS_TEXT_BYTES);
    *ret_row = (struct store_row){.table = STORE_TENANT};
    ret_row->tenant = (struct store_tenant){.name = tenant->key.tenant,
                                            .secret = key_format_secret(&tenant->key, secret),
                                            .is_operator = tenant->is_operator,
                                            .is_revoked = tenant->is_revoked,
                                            .added_s = tenant->added_s,
                                            .loss_limit_ppm = tenant->loss_limit_ppm,
                                            .limits = limits};
}

int tenant_keep(struct service *s, const struct tenant *tenant, struct err *err)
{
    char secret[KEY_SECRET_TEXT_BYTES], limits[LIMITS_TEXT_BYTES];
    struct store_row row;
    tenant_row(tenant, secret, limits, &row);
    int error = store_put_one(s->store, &row, err);
    if (error == 0)
        store_sync(s->store);
    explicit_bzero(secret, sizeof secret);
    return error;
}

int tenants_restore(struct service *s, const struct store_tenant *row)
{
    char text[KEY_TEXT_BYTES];
    struct key key;
    struct err err;
    int length = snprintf(text, sizeof text, "%s:%s", row->name, row->secret);
    if (length >= (int)sizeof text || key_parse(text, &key, &err) < 0)
        return -EBADMSG;
    struct tenant *tenant = tenant_create(s, key.tenant);
    if (!tenant)
        return -ENOMEM;
    tenant->key = key;
    tenant->is_operator = row->is_operator != 0;
    tenant->is_revoked = row->is_revoked != 0;
    tenant->added_s = row->added_s;
    tenant->loss_limit_ppm = row->loss_limit_ppm;
    key_forget(&key);
    explicit_bzero(text, sizeof text);
    int error = limits_read_own(&tenant->limits, row->limits);
    tenant->party.budget_percent = tenant_cpu_percent(tenant);
    return error;
}

int tenants_find_key(void *context, const char *name, struct key *ret_key)
{
    const struct tenant *tenant = *name ? tenants_find(context, name) : NULL;
    if (!tenant)
        return -ENOENT;
    if (tenant->is_revoked)
        return -EKEYREVOKED;
    *ret_key = tenant->key;
    return 0;
}

void tenant_adopt_limits(struct tenant *tenant, const struct limits *limits)
{
    tenant->limits = *limits;
    tenant->limits.tenant = tenant->key.tenant;
    tenant->party.budget_percent = tenant_cpu_percent(tenant);
}

const char *tenant_title(const struct tenant *tenant, char *buffer, size_t buffer_bytes)
{
    const char *name = tenant->key.tenant;
    snprintf(buffer, buffer_bytes, *name ? "tenant %s" : "the tenant without a key%s", name);
    return buffer;
}
