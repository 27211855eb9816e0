/* gradpool tenant: who may use the service from other hosts. Speaks to the coordinator over the
 * Unix socket in its state dir, and nowhere else: keys are not made over a network. Must never
 * print a key but the new one, on standard output. */
#include "svc/base/cleanup.h"
#include "svc/cli/cli.h"
#include "svc/cli/knobs.h"
#include "svc/cli/operator.h"

#include <errno.h>
#include <string.h>

enum { STATE_DIR, OPERATOR, LOSS_LIMIT, JSON };

const struct knob tenant_knobs[] = {
    [STATE_DIR] = {"state-dir", "DIR", "that of gradpool serve (default: the same as there)",
                   KNOB_VARIABLE},
    [OPERATOR] = {"operator", NULL,
                  "with add: the key may also add aggregators, and see the jobs of all tenants "
                  "(default: off)"},
    [LOSS_LIMIT] = {"loss-limit", "PERCENT",
                    "with add: how much slower each of its jobs may become by sharing lanes, for "
                    "instance 5% or 2.5; the strictest of the service's, the tenant's and the "
                    "job's counts (default: none of its own)"},
    [JSON] = {"json", NULL, "with list: print JSON instead of a table"},
    {0},
};

struct tenant_options {
    const char *verb, *name, *state_dir;
    bool is_operator, json;
    uint32_t loss_limit_ppm;
};

static int set(void *context, int index, const char *value, struct err *err)
{
    struct tenant_options *o = context;
    if (index == STATE_DIR)
        o->state_dir = value;
    else if (index == OPERATOR)
        o->is_operator = true;
    else if (index == LOSS_LIMIT)
        return knobs_percent(value, &o->loss_limit_ppm, err);
    else
        o->json = true;
    return 0;
}

static int set_operand(void *context, const char *value, struct err *err)
{
    struct tenant_options *o = context;
    bool is_verb = !o->verb && (strcmp(value, "add") == 0 || strcmp(value, "list") == 0 ||
                                strcmp(value, "revoke") == 0);
    if (is_verb)
        o->verb = value;
    else if (!o->verb)
        return err_set(err, -EINVAL, "'%s': expected add, list or revoke", value);
    else if (o->name || strcmp(o->verb, "list") == 0)
        return err_set(err, -EINVAL, "'%s' is too much", value);
    else
        o->name = value;
    return 0;
}

static void parse(int argc, char **argv, struct tenant_options *ret_options)
{
    static const struct knob_command command = {
        .name = "gradpool tenant",
        .operands = "add NAME | list | revoke NAME",
        .knobs = tenant_knobs,
        .set = set,
        .operand = set_operand,
        .before = "Makes and revokes the keys by which tenants use the service from other hosts. "
                  "Runs on the coordinator's host, as the user of gradpool serve, while it runs.",
        .after = "Examples:\n"
                 "  gradpool tenant add acme > acme.key     jobs: GRADPOOL_KEY_FILE=acme.key\n"
                 "  gradpool tenant add node8 --operator    for gradpool aggregator --join\n"
                 "  gradpool tenant revoke acme             its jobs fail, at once\n\n"
                 "A key is printed once; who has it is the tenant. Exit code: 0 done; 1 failed; "
                 "2 a mistake on the command line; 3 no service there."};
    struct tenant_options o = {0};
    knobs_parse(&command, argc, argv, &o);
    const char *missing = !o.verb                                  ? "add, list or revoke"
                          : !o.name && strcmp(o.verb, "list") != 0 ? "NAME, the tenant's"
                                                                   : NULL;
    if (missing) {
        fprintf(stderr,
                "gradpool tenant: missing: %s\n"
                "Try `gradpool tenant --help' for more information.\n",
                missing);
        exit(CLI_USAGE);
    }
    *ret_options = o;
}

static int ask(const struct tenant_options *o, envelope *request, envelope **ret_reply)
{
    char endpoint[OPERATOR_SOCKET_BYTES];
    operator_socket(o->state_dir, endpoint, sizeof endpoint);
    struct operator_options options = {.endpoint = endpoint};
    int error = operator_ask(&options, request, ret_reply);
    return error == 0 ? CLI_OK : error == -EHOSTDOWN ? CLI_NOTHING : CLI_FAILED;
}

static int add_key(const struct tenant_options *o)
{
    Gradpool__Wire__TenantAddRequest add = GRADPOOL__WIRE__TENANT_ADD_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    add.tenant = (char *)o->name;
    add.is_operator = o->is_operator;
    add.loss_limit_ppm = o->loss_limit_ppm;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_TENANT_ADD_REQUEST;
    request.tenant_add_request = &add;
    int code = ask(o, &request, &reply);
    if (code != CLI_OK)
        return code;
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_TENANT_ADD_REPLY ||
        puts(reply->tenant_add_reply->key) < 0 || fflush(stdout) < 0)
        code = CLI_FAILED;
    else
        fprintf(stderr,
                "gradpool: this key is shown once. Where it is used, put it into a file with mode "
                "600\nand set GRADPOOL_KEY_FILE to its path (or GRADPOOL_KEY to the key).\n");
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}

static int revoke_key(const struct tenant_options *o)
{
    Gradpool__Wire__TenantRevokeRequest revoke = GRADPOOL__WIRE__TENANT_REVOKE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    revoke.tenant = (char *)o->name;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_TENANT_REVOKE_REQUEST;
    request.tenant_revoke_request = &revoke;
    int code = ask(o, &request, &reply);
    if (code == CLI_OK)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}

static int show(const Gradpool__Wire__TenantsReply *reply, bool json, const struct cli_show *how)
{
    _cleanup_free_ struct view_tenant *views = calloc(reply->n_tenants + 1, sizeof *views);
    if (!views)
        return CLI_FAILED;
    for (size_t i = 0; i < reply->n_tenants; i++) {
        const Gradpool__Wire__TenantView *tenant = reply->tenants[i];
        views[i] = (struct view_tenant){.tenant = tenant->tenant,
                                        .role = tenant->is_operator ? "operator" : "tenant",
                                        .state = tenant->is_revoked ? "revoked" : "active",
                                        .added_s = tenant->added_s,
                                        .loss_limit_ppm = tenant->loss_limit_ppm,
                                        .jobs = tenant->jobs,
                                        .connections = tenant->connections};
    }
    struct view_tenants tenants = {views, reply->n_tenants};
    int error = (json ? how->tenants_json : how->tenants_table)(&tenants, stdout);
    return error < 0 ? CLI_FAILED : CLI_OK;
}

static int list_tenants(const struct tenant_options *o, const struct cli_show *how)
{
    Gradpool__Wire__TenantsRequest list = GRADPOOL__WIRE__TENANTS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT, *reply;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_TENANTS_REQUEST;
    request.tenants_request = &list;
    int code = ask(o, &request, &reply);
    if (code != CLI_OK)
        return code;
    code = reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_TENANTS_REPLY
               ? show(reply->tenants_reply, o->json, how)
               : CLI_FAILED;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}

int cli_tenant(int argc, char **argv, const struct cli_show *how)
{
    struct tenant_options o;
    parse(argc, argv, &o);
    if (strcmp(o.verb, "add") == 0)
        return add_key(&o);
    return strcmp(o.verb, "revoke") == 0 ? revoke_key(&o) : list_tenants(&o, how);
}
