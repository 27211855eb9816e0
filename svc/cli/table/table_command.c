/* gradpool table: shows the tables of keyed rows of all jobs, or of one job. A table ends with its
 * job, so there is no order to drop one. */
#include "svc/cli/table/table.h"

#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct knob table_knobs[] = {
    [OPERATOR_ENDPOINT] = OPERATOR_ENDPOINT_KNOB,
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a table"},
    {0},
};

struct table_options {
    struct operator_options options; /* first: the functions of operator.h write to it */
    bool lists;
};

static int table_operand(void *context, const char *value, struct err *err)
{
    struct table_options *o = context;
    if (o->lists)
        return operator_set_job(&o->options, value, err);
    if (strcmp(value, "list") != 0)
        return err_set(err, -EINVAL, "'%s': expected list", value);
    o->lists = true;
    return 0;
}

static void table_options_parse(int argc, char **argv, struct table_options *ret_options)
{
    static const struct knob_command command = {
        .name = "gradpool table",
        .operands = "list [JOB]",
        .knobs = table_knobs,
        .set = operator_set,
        .operand = table_operand,
        .before =
            "Shows the tables of keyed rows of all jobs, or of one job: rows, memory, keys of "
            "pulls and pushes, the smallest clock, and the rank that is furthest behind.",
        .after = "Examples:\n  gradpool table list\n  gradpool table list words --json\n\n"
                 "A table ends with its job. Exit code: 0 shown; 1 failed; 2 a mistake on the "
                 "command line; 3 no service there, or no such job."};
    *ret_options = (struct table_options){.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT}};
    knobs_parse(&command, argc, argv, ret_options);
    if (!ret_options->lists)
        exit(knobs_mistake("gradpool table", "missing: list"));
}

static int tables_show(envelope **reply, const void *context)
{
    const struct operator_options *o = context;
    struct snapshot *snapshot;
    if (snapshot_create(NULL, *reply, &snapshot) < 0)
        return CLI_FAILED;
    *reply = NULL;
    bool is_nothing = o->job && snapshot->jobs.jobs_count == 0;
    int error = 0;
    if (is_nothing)
        fprintf(stderr, "gradpool: there is no job %s; see gradpool jobs\n", o->job);
    else
        error = (o->json ? ops_tables_json : ops_tables_table)(&snapshot->jobs, stdout);
    snapshot_destroy(snapshot);
    return is_nothing ? CLI_NOTHING : error < 0 ? CLI_FAILED : CLI_OK;
}

int cli_table(int argc, char **argv)
{
    struct table_options o;
    table_options_parse(argc, argv, &o);
    return operator_show(&o.options,
                         &MESSAGE(0, JOBS_REQUEST, jobs_request, .job = (char *)o.options.job),
                         GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY, tables_show, &o.options);
}
