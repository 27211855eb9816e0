/* gradpool table: lists the tables of keyed rows of jobs, writes the rows of a table to a file, or
 * stores the rows of a file in a new table. A table ends with its job, so no order drops a table.
 * svc/coordinator/RULES.md: K102; svc/state/README.md: D4. */
#include "svc/cli/table/table.h"

#include "svc/channel/table_spec.h"
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/state/table_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_TIMEOUT_MS 30000 /* longest wait until all lanes hold the table */
#define PART_TIMEOUT_MS 20000

enum { TENANT = OPERATOR_KNOBS };

const struct knob table_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a table or a sentence"},
    [TENANT] = {OPERATOR_TENANT_KNOB},
    {0},
};

enum table_verb { VERB_NONE, VERB_LIST, VERB_EXPORT, VERB_IMPORT };

struct table_wish {
    struct operator_options options; /* first field, for operator_set_job() */
    enum table_verb verb;
    const char *tenant, *table, *path;
};

struct table_talk {
    const struct table_wish *wish;
    struct channel *channel;
    envelope *begun; /* owns `what`, the reply to the first request */
    const Gradpool__Wire__TableFileReply *what;
    char *rows; /* memory of one part */
    uint64_t count;
    uint64_t largest_key; /* of the rows of the file, in an import */
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
            "job trains. With consistency bsp all rows are of one clock. Otherwise each lane is "
            "read between two pushes. Pushes wait meanwhile, at most 20 s. The command never "
            "leaves an incomplete file.\n\n"
            "import stores the rows of such a file in a table of another job, with any number of "
            "shards, that has the same dim, dtype, rule and initial values, and no rows yet. "
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

/* ---- requests ---- */

static int table_ask(struct table_talk *t, Gradpool__Wire__TableFileRequest request, int timeout_ms,
                     envelope **ret_reply, struct err *err)
{
    request.file = t->what ? t->what->file : 0;
    int error =
        channel_ask(t->channel, &ENVELOPE(0, TABLE_FILE_REQUEST, table_file_request, &request),
                    timeout_ms, GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_FILE_REPLY, ret_reply, err);
    return operator_explain(t->wish->options.endpoint, t->channel, error, err);
}

static int table_begin(struct table_talk *t, Gradpool__Wire__TableFileStep step, struct err *err)
{
    const struct table_wish *w = t->wish;
    int error = table_ask(t,
                          MESSAGE_PART(TableFileRequest, table_file_request, .step = step,
                                       .job = (char *)w->options.job, .tenant = (char *)w->tenant,
                                       .table = (char *)w->table),
                          HOLD_TIMEOUT_MS, &t->begun, err);
    if (error < 0)
        return error;
    t->what = t->begun->table_file_reply;
    return t->what->spec ? 0
                         : err_set(err, -EBADMSG,
                                   "the service sent a table without terms; install one version of "
                                   "gradpool on all hosts");
}

static int table_end(struct table_talk *t, uint64_t steps, struct err *err)
{
    envelope *reply = NULL;
    int error = table_ask(t,
                          MESSAGE_PART(TableFileRequest, table_file_request,
                                       .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_END,
                                       .steps = steps),
                          PART_TIMEOUT_MS, &reply, err);
    if (error == 0)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

/* ---- export ---- */

/* Writes the next rows. Returns 1, 0 if all rows were read, or an error. */
static int export_next(struct table_talk *t, struct table_file_writer *w, struct err *err)
{
    envelope *reply = NULL;
    int error = table_ask(t,
                          MESSAGE_PART(TableFileRequest, table_file_request,
                                       .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_NEXT),
                          PART_TIMEOUT_MS, &reply, err);
    if (error < 0)
        return error;
    const Gradpool__Wire__TableFileReply *part = reply->table_file_reply;
    if (!part->is_end)
        error = table_file_put(w, part->rows.data, part->rows.len, err);
    int result = error < 0 ? error : !part->is_end;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return result;
}

static int export_all(struct table_talk *t, struct table_file_writer *w, struct err *err)
{
    int more = 1;
    while (more > 0)
        more = export_next(t, w, err);
    t->count = w->rows;
    if (more == 0 && w->rows != t->what->count)
        return err_set(err, -EBADMSG,
                       "the service sent %" PRIu64 " rows of table %s, which has %" PRIu64
                       "; export again",
                       w->rows, t->wish->table, t->what->count);
    return more;
}

/* Checks the path before the request, so that no job waits for a file that cannot be written. */
static int export_check_path(const char *path, struct err *err)
{
    struct whole_file trial;
    int error = whole_file_begin("table", path, &trial, err);
    if (error == 0)
        whole_file_abandon(&trial);
    return error;
}

static int table_export(struct table_talk *t, struct err *err)
{
    struct table_file_writer w = {.file = {.fd = -1}};
    int error = export_check_path(t->wish->path, err);
    if (error == 0)
        error = operator_open(t->wish->options.endpoint, &t->channel, err);
    if (error == 0)
        error = table_begin(t, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_EXPORT, err);
    if (error < 0)
        return error;
    struct table_file_head head = {
        .terms = table_spec_terms(t->what->spec), .steps = t->what->steps, .clock = t->what->clock};
    snprintf(head.name, sizeof head.name, "%s", t->what->spec->name);
    error = table_file_begin(t->wish->path, &head, &w, err);
    if (error < 0)
        return error;
    error = export_all(t, &w, err);
    if (error == 0)
        error = table_end(t, 0, err);
    if (error == 0)
        return table_file_finish(&w, err);
    table_file_abandon(&w);
    return error;
}

/* ---- import ---- */

static void import_note_keys(struct table_talk *t, const struct table_file *f, int64_t bytes)
{
    for (const char *row = t->rows; row < t->rows + bytes; row += f->row_bytes) {
        uint64_t key;
        memcpy(&key, row, sizeof key);
        t->largest_key = key > t->largest_key ? key : t->largest_key;
    }
}

/* Reads the whole file once before the import begins, so that a damaged file changes no table. */
static int import_check(struct table_talk *t, struct table_file *f, struct err *err)
{
    int64_t bytes;
    while ((bytes = table_file_next(f, t->rows, err)) > 0)
        import_note_keys(t, f, bytes);
    table_file_rewind(f);
    return (int)bytes;
}

static int import_put(struct table_talk *t, size_t bytes, struct err *err)
{
    envelope *reply = NULL;
    int error = table_ask(t,
                          MESSAGE_PART(TableFileRequest, table_file_request,
                                       .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_PUT,
                                       .rows = {bytes, (uint8_t *)t->rows}),
                          PART_TIMEOUT_MS, &reply, err);
    if (error == 0)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

static int import_all(struct table_talk *t, struct table_file *f, struct err *err)
{
    int error = 0;
    while (error == 0) {
        int64_t bytes = table_file_next(f, t->rows, err);
        if (bytes <= 0)
            return (int)bytes;
        error = import_put(t, (size_t)bytes, err);
    }
    return error;
}

/* Refuses a file with a key that the table cannot have. No bound is above the largest key. */
static int import_refuse_key(const struct table_talk *t, uint64_t keys, struct err *err)
{
    char advice[64] = "without a bound of keys (0: any key)";
    if (t->largest_key < UINT64_MAX)
        snprintf(advice, sizeof advice, "with keys of %" PRIu64 " or more (0: any key)",
                 t->largest_key + 1);
    return err_set(err, -ERANGE,
                   "file %s has key %" PRIu64 ", but table '%s' of job %s has keys below %" PRIu64
                   "; declare the table %s",
                   t->wish->path, t->largest_key, t->wish->table, t->wish->options.job, keys,
                   advice);
}

/* Compares the file with the table. If they do not match, ends the hold; no row has changed. */
static int import_match(struct table_talk *t, const struct table_file *f, struct err *err)
{
    const struct table_wish *w = t->wish;
    const struct table_terms terms = table_spec_terms(t->what->spec);
    int error = table_file_match(&f->head, &terms, w->table, err);
    if (error < 0 || terms.keys == 0 || f->head.rows == 0 || t->largest_key < terms.keys)
        return error;
    return import_refuse_key(t, terms.keys, err);
}

static int import_file(struct table_talk *t, struct table_file *f, struct err *err)
{
    t->rows = malloc(TABLE_FILE_PART_BYTES_MAX);
    if (!t->rows)
        return err_set(
            err, -ENOMEM,
            "this process has no memory for the rows of a table; raise its memory limit");
    int error = import_check(t, f, err);
    if (error == 0)
        error = operator_open(t->wish->options.endpoint, &t->channel, err);
    if (error == 0)
        error = table_begin(t, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_IMPORT, err);
    if (error == 0)
        error = import_match(t, f, err);
    if (error == 0)
        error = import_all(t, f, err);
    t->count = f->rows;
    return error < 0 ? error : table_end(t, f->head.steps, err);
}

static int table_import(struct table_talk *t, struct err *err)
{
    struct table_file f;
    int error = table_file_open(t->wish->path, &f, err);
    if (error < 0)
        return error;
    error = import_file(t, &f, err);
    table_file_close(&f);
    return error;
}

/* ---- the command ---- */

static void table_print(const struct table_talk *t)
{
    const struct table_wish *w = t->wish;
    if (w->options.json)
        printf("{\"rows\": %" PRIu64 ", \"clock\": %" PRIu64 "}\n", t->count, t->what->clock);
    else if (w->verb == VERB_EXPORT)
        printf("%s: table %s of job %s before clock %" PRIu64 ", %" PRIu64 " rows\n", w->path,
               w->table, w->options.job, t->what->clock, t->count);
    else
        printf("table %s of job %s has the %" PRIu64 " rows of %s\n", w->table, w->options.job,
               t->count, w->path);
}

static int table_exchange(const struct table_wish *wish)
{
    struct table_talk t = {.wish = wish};
    struct err err = {0};
    int error = wish->verb == VERB_EXPORT ? table_export(&t, &err) : table_import(&t, &err);
    if (error < 0)
        fprintf(stderr, "gradpool: %s\n", err.text);
    else
        table_print(&t);
    bool is_nothing = error == -EHOSTDOWN || (error == -ENOENT && t.channel && !t.what);
    channel_destroy(t.channel);
    gradpool__wire__envelope__free_unpacked(t.begun, NULL);
    free(t.rows);
    return error == 0 ? CLI_OK : is_nothing ? CLI_NOTHING : CLI_FAILED;
}

int cli_table(int argc, char **argv)
{
    struct table_wish wish;
    table_parse(argc, argv, &wish);
    return wish.verb == VERB_LIST ? cli_tables_list(&wish.options) : table_exchange(&wish);
}
