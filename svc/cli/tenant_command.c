/* gradpool tenant: keys and quotas of tenants, whose users connect from other hosts. Connects only
 * over the Unix socket in the coordinator's state directory, so that keys are never created over a
 * network. The only secret that is printed is the new key, on standard output. */
#include "svc/base/cleanup.h"
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"

#include <errno.h>
#include <string.h>

enum { STATE_DIR, OPERATOR, LOSS_LIMIT, JSON, LIMIT_FIRST };

#define LIMIT_KNOB(id, name, what, preset, ...)                                                  \
    [LIMIT_FIRST + LIMIT_##id] = {                                                               \
        name "-max", "N", "with add and set: most " what " (default: as gradpool serve has it)", \
        .source = KNOB_TYPED},

const struct knob tenant_knobs[] = {
    [STATE_DIR] = {"state-dir", "DIR",
                   "state directory of gradpool serve (default: the default "
                   "of gradpool serve)",
                   KNOB_VARIABLE},
    [OPERATOR] = {"operator", NULL,
                  "with add: the key may also add aggregators, and see the jobs of all tenants "
                  "(default: off)"},
    [LOSS_LIMIT] = {"loss-limit", "PERCENT",
                    "with add and set: slow-down by sharing lanes that each job of the tenant "
                    "accepts, such as 5% or 2.5; of the limits of service, tenant and job the "
                    "smallest applies (default: no limit of the tenant)"},
    [JSON] = {"json", NULL, "with list: print JSON instead of a table"},
    LIMIT_TENANT_TABLE(LIMIT_KNOB){0},
};

struct tenant_options {
    const char *verb, *name, *state_dir;
    bool is_operator, json, sets_loss_limit;
    uint32_t loss_limit_ppm;
    Gradpool__Wire__TenantLimit limits[LIMITS_OF_TENANT], *named[LIMITS_OF_TENANT];
    size_t named_count;
};

/* Checks the value before the request, so that a wrong value is reported as a mistake in the
 * command line. */
static int set_limit(struct tenant_options *o, enum limit limit, const char *value, struct err *err)
{
    struct limits tried;
    limits_init(&tried);
    int error = limits_set_own(&tried, &tried, limit, value, err);
    if (error < 0)
        return error;
    Gradpool__Wire__TenantLimit *row = &o->limits[limit];
    if (!row->name)
        o->named[o->named_count++] = row;
    *row = MESSAGE_PART(TenantLimit, tenant_limit, .name = (char *)limit_about(limit)->name,
                        .value = (char *)value);
    return 0;
}

static int set_loss_limit(struct tenant_options *o, const char *value, struct err *err)
{
    o->sets_loss_limit = true;
    o->loss_limit_ppm = 0;
    return strcmp(value, "default") == 0 ? 0 : knobs_percent(value, &o->loss_limit_ppm, err);
}

static int set(void *context, int index, const char *value, struct err *err)
{
    struct tenant_options *o = context;
    if (index >= LIMIT_FIRST)
        return set_limit(o, (enum limit)(index - LIMIT_FIRST), value, err);
    if (index == STATE_DIR)
        o->state_dir = value;
    else if (index == OPERATOR)
        o->is_operator = true;
    else if (index == LOSS_LIMIT)
        return set_loss_limit(o, value, err);
    else
        o->json = true;
    return 0;
}

static int set_operand(void *context, const char *value, struct err *err)
{
    struct tenant_options *o = context;
    static const char *const verbs[] = {"add", "set", "list", "revoke"};
    for (size_t i = 0; !o->verb && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(value, verbs[i]) == 0) {
            o->verb = verbs[i];
            return 0;
        }
    if (!o->verb)
        return err_set(err, -EINVAL, "'%s': expected add, set, list or revoke", value);
    else if (o->name || strcmp(o->verb, "list") == 0)
        return err_set(
            err, -EINVAL,
            "'%s': one argument too many; add, set and revoke take one NAME, and list takes none",
            value);
    else
        o->name = value;
    return 0;
}

static void parse(int argc, char **argv, struct tenant_options *ret_options)
{
    static const struct knob_command command = {
        .name = "gradpool tenant",
        .operands = "add NAME | set NAME | list | revoke NAME",
        .knobs = tenant_knobs,
        .set = set,
        .operand = set_operand,
        .before = "Creates and revokes the keys with which tenants use the service from other "
                  "hosts, and sets the quotas of each tenant. Runs on the coordinator's host, as "
                  "the user of gradpool serve, while gradpool serve runs.",
        .after = "Examples:\n"
                 "  gradpool tenant add acme > acme.key     jobs: GRADPOOL_KEY_FILE=acme.key\n"
                 "  gradpool tenant add node8 --operator    for gradpool aggregator --join\n"
                 "  gradpool tenant set acme --tenant-jobs-max 4 --job-bytes-max 8G\n"
                 "  gradpool tenant set acme --job-bytes-max default   the value of serve\n"
                 "  gradpool tenant revoke acme             its jobs fail at once\n\n"
                 "A lower quota ends no running job. A key is printed once; every user with this "
                 "key acts as the tenant. Exit code: 0 done; 1 failed; 2 a mistake on the "
                 "command line; 3 no service there."};
    struct tenant_options o = {0};
    knobs_parse(&command, argc, argv, &o);
    bool changes = o.verb && strcmp(o.verb, "set") == 0;
    const char *missing = !o.verb ? "add, set, list or revoke"
                          : changes && o.name && o.named_count == 0 && !o.sets_loss_limit
                              ? "a quota to set, such as --tenant-jobs-max N"
                          : !o.name && strcmp(o.verb, "list") != 0 ? "NAME, the tenant's"
                                                                   : NULL;
    if (missing)
        exit(knobs_mistake("gradpool tenant", "missing: %s", missing));
    *ret_options = o;
}

static int ask(const struct tenant_options *o, envelope *request, int expected,
               operator_show_fn show)
{
    char endpoint[OPERATOR_SOCKET_BYTES];
    operator_socket(o->state_dir, endpoint, sizeof endpoint);
    const struct operator_options options = {.endpoint = endpoint};
    return operator_show(&options, request, expected, show, o);
}

static int print_key(envelope **reply, const void *context)
{
    if (puts((*reply)->tenant_add_reply->key) < 0 || fflush(stdout) < 0)
        return CLI_FAILED;
    fprintf(stderr,
            "gradpool: this key is shown once. Where it is used, put it into a file with "
            "mode 600\nand set GRADPOOL_KEY_FILE to its path (or GRADPOOL_KEY to the key).\n");
    return CLI_OK;
}

static int add_key(struct tenant_options *o)
{
    return ask(o,
               &MESSAGE(0, TENANT_ADD_REQUEST, tenant_add_request, .tenant = (char *)o->name,
                        .is_operator = o->is_operator, .loss_limit_ppm = o->loss_limit_ppm,
                        .limits = o->named, .n_limits = o->named_count),
               GRADPOOL__WIRE__ENVELOPE__BODY_TENANT_ADD_REPLY, print_key);
}

static int say_set(envelope **reply, const void *context)
{
    const struct tenant_options *o = context;
    printf("tenant %s: its quotas are set; 'gradpool tenant list' shows them\n", o->name);
    return CLI_OK;
}

static int set_quotas(struct tenant_options *o)
{
    return ask(o,
               &MESSAGE(0, TENANT_SET_REQUEST, tenant_set_request, .tenant = (char *)o->name,
                        .limits = o->named, .n_limits = o->named_count,
                        .sets_loss_limit = o->sets_loss_limit, .loss_limit_ppm = o->loss_limit_ppm),
               GRADPOOL__WIRE__ENVELOPE__BODY_DONE, say_set);
}

static int say_revoked(envelope **reply, const void *context)
{
    const struct tenant_options *o = context;
    printf("tenant %s: its key is refused from now on, and its jobs have failed\n", o->name);
    return CLI_OK;
}

static int revoke_key(const struct tenant_options *o)
{
    return ask(o,
               &MESSAGE(0, TENANT_REVOKE_REQUEST, tenant_revoke_request, .tenant = (char *)o->name),
               GRADPOOL__WIRE__ENVELOPE__BODY_DONE, say_revoked);
}

static void fill_limits(const Gradpool__Wire__TenantView *tenant, struct view_limit *limits)
{
    for (size_t i = 0; i < tenant->n_limits && i < LIMITS_OF_TENANT; i++)
        limits[i] = (struct view_limit){.name = tenant->limits[i]->name,
                                        .used = tenant->limits[i]->used,
                                        .most = tenant->limits[i]->most,
                                        .is_own = tenant->limits[i]->is_own};
}

static int show(envelope **message, const void *context)
{
    const struct tenant_options *o = context;
    const Gradpool__Wire__TenantsReply *reply = (*message)->tenants_reply;
    _cleanup_free_ struct view_tenant *views = calloc(reply->n_tenants + 1, sizeof *views);
    _cleanup_free_ struct view_limit *all_limits =
        calloc((reply->n_tenants + 1) * LIMITS_OF_TENANT, sizeof *all_limits);
    if (!views || !all_limits)
        return CLI_FAILED;
    for (size_t i = 0; i < reply->n_tenants; i++) {
        const Gradpool__Wire__TenantView *tenant = reply->tenants[i];
        struct view_limit *limits = &all_limits[i * LIMITS_OF_TENANT];
        fill_limits(tenant, limits);
        views[i] = (struct view_tenant){.tenant = tenant->tenant,
                                        .role = tenant->is_operator ? "operator" : "tenant",
                                        .state = tenant->is_revoked ? "revoked" : "active",
                                        .added_s = tenant->added_s,
                                        .loss_limit_ppm = tenant->loss_limit_ppm,
                                        .cpu_ns = tenant->cpu_ns,
                                        .limits = limits,
                                        .limits_count = tenant->n_limits,
                                        .jobs = tenant->jobs,
                                        .connections = tenant->connections};
    }
    struct view_tenants tenants = {views, reply->n_tenants};
    int error = (o->json ? ops_tenants_json : ops_tenants_table)(&tenants, stdout);
    return error < 0 ? CLI_FAILED : CLI_OK;
}

static int list_tenants(const struct tenant_options *o)
{
    return ask(o, &MESSAGE(0, TENANTS_REQUEST, tenants_request),
               GRADPOOL__WIRE__ENVELOPE__BODY_TENANTS_REPLY, show);
}

int cli_tenant(int argc, char **argv)
{
    struct tenant_options o;
    parse(argc, argv, &o);
    if (strcmp(o.verb, "add") == 0)
        return add_key(&o);
    if (strcmp(o.verb, "set") == 0)
        return set_quotas(&o);
    return strcmp(o.verb, "revoke") == 0 ? revoke_key(&o) : list_tenants(&o);
}
