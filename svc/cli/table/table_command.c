/* gradpool table: lists the tables of keyed rows of jobs, writes the rows of a table to a file, or
 * stores the rows of a file in a new table. A table ends with its job, so no order drops a table.
 * svc/coordinator/RULES.md: K102; svc/state/README.md: D4. */
#include "svc/cli/table/table.h"

#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/state/table_fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENANT = OPERATOR_KNOBS };

const struct knob table_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a table or a sentence"},
    [TENANT] = {OPERATOR_TENANT_KNOB},
    {0},
};

enum table_verb { VERB_NONE, VERB_LIST, VERB_EXPORT, VERB_IMPORT };

struct table_wish {
    /* first field, because operator_set_job() casts the context to this type */
    struct operator_options options;
    enum table_verb verb;
    const char *tenant, *table, *path;
};

/* ---- the command line ---- */

static int table_set(void *context, int index, const char *value, struct err *err)
{
    struct table_wish *w = context;
    if (index != TENANT)
        return operator_set(&w->options, index, value, err);
    w->tenant = value;
    return 0;
}

static int table_set_verb(struct table_wish *w, const char *value, struct err *err)
{
    static const char *const verbs[] = {NULL, "list", "export", "import"};
    for (enum table_verb verb = VERB_LIST; verb <= VERB_IMPORT; verb++)
        if (strcmp(value, verbs[verb]) == 0) {
            w->verb = verb;
            return 0;
        }
    return err_set(err, -EINVAL, "'%s': expected list, export or import", value);
}

static int table_operand(void *context, const char *value, struct err *err)
{
    struct table_wish *w = context;
    if (w->verb == VERB_NONE)
        return table_set_verb(w, value, err);
    if (w->verb == VERB_LIST || !w->options.job)
        return operator_set_job(&w->options, value, err);
    const char **next = !w->table ? &w->table : &w->path;
    if (*next)
        return err_set(err, -EINVAL, "'%s': one operand too many", value);
    *next = value;
    return 0;
}

static void table_parse(int argc, char **argv, struct table_wish *ret_wish)
{
    static const struct knob_command command = {
        .name = "gradpool table",
        .operands = "list [JOB] | export JOB TABLE FILE | import JOB TABLE FILE",
        .knobs = table_knobs,
        .set = table_set,
        .operand = table_operand,
        .before =
            "list shows the tables of keyed rows of all jobs, or of one job: rows, memory, keys "
            "of pulls and pushes, the smallest clock, and the rank that is furthest behind.\n\n"
            "export writes keys, values and moments of a table to a file on this host while the "
            "job trains. With consistency bsp, all rows are of one clock. Otherwise each lane is "
            "read between two pushes. Pushes wait meanwhile, at most 20 s. The command never "
            "leaves an incomplete file.\n\n"
            "import stores the rows of such a file in a table of another job. This table has the "
            "same dim, dtype, rule and initial values, any number of shards, and no rows yet. "
            "Pulls and pushes wait meanwhile. If an import ends early, the job fails.",
        .after = "Examples:\n  gradpool table list words --json\n"
                 "  gradpool table export words users /backup/users.table\n"
                 "  gradpool table import words-2 users /backup/users.table\n\n"
                 "A table ends with its job. Exit code: 0 done; 1 failed; 2 a mistake on the "
                 "command line; 3 no service there, or no such job or table."};
    *ret_wish =
        (struct table_wish){.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT}, .tenant = ""};
    knobs_parse(&command, argc, argv, ret_wish);
    if (ret_wish->verb == VERB_NONE)
        exit(knobs_mistake("gradpool table", "missing: list, export or import"));
    if (ret_wish->verb != VERB_LIST && !ret_wish->path)
        exit(knobs_mistake("gradpool table", "missing: JOB TABLE FILE"));
}

/* ---- the command ---- */

static void table_print(const struct table_wish *w, const struct table_fetch *f)
{
    if (w->options.json)
        printf("{\"rows\": %" PRIu64 ", \"clock\": %" PRIu64 "}\n", f->rows, f->clock);
    else if (w->verb == VERB_EXPORT)
        printf("%s: table %s of job %s before clock %" PRIu64 ", %" PRIu64 " rows\n", w->path,
               w->table, w->options.job, f->clock, f->rows);
    else
        printf("table %s of job %s has the %" PRIu64 " rows of %s\n", w->table, w->options.job,
               f->rows, w->path);
}

static int table_copy(const struct table_wish *w, struct table_fetch *f, struct err *err)
{
    const char *endpoint = w->options.endpoint;
    int error = operator_open(endpoint, &f->channel, err);
    if (error < 0)
        return error;
    error = w->verb == VERB_EXPORT ? table_fetch_export(f, err) : table_fetch_import(f, err);
    return operator_explain(endpoint, f->channel, error, err);
}

static int table_exchange(const struct table_wish *w)
{
    struct table_fetch f = {
        .job = w->options.job, .tenant = w->tenant, .table = w->table, .path = w->path};
    struct err err = {0};
    int error = table_copy(w, &f, &err);
    if (error < 0)
        fprintf(stderr, "gradpool: %s\n", err.text);
    else
        table_print(w, &f);
    bool is_nothing = error == -EHOSTDOWN || (error == -ENOENT && f.has_asked && !f.has_begun);
    table_fetch_free(&f);
    channel_destroy(f.channel);
    return error == 0 ? CLI_OK : is_nothing ? CLI_NOTHING : CLI_FAILED;
}

int cli_table(int argc, char **argv)
{
    struct table_wish wish;
    table_parse(argc, argv, &wish);
    return wish.verb == VERB_LIST ? cli_tables_list(&wish.options) : table_exchange(&wish);
}
