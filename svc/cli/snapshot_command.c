/* gradpool snapshot: writes parameters and moments of a job in training, or the rows of its tables,
 * to a file for gp_job_restore(). Parts are fetched and written one after another. After any error
 * the job continues, and no incomplete file is left. svc/coordinator/RULES.md: K47, K150;
 * svc/state/README.md: D1, D5. */
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/state/state_fetch.h"
#include "svc/state/state_write.h"
#include "svc/state/tables/tables_copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TENANT = OPERATOR_KNOBS, OUTPUT };

const struct knob snapshot_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a sentence"},
    [TENANT] = {OPERATOR_TENANT_KNOB},
    [OUTPUT] = {"output", "FILE", "file that is written (default: JOB.snapshot)"},
    {0},
};

struct request {
    /* first field, because operator_set_job() casts the context to this type */
    struct operator_options options;
    const char *tenant, *output;
};

struct fetch {
    const char *endpoint;
    struct state_fetch conversation;
    /* The tensors. The reply owns the names that the file uses. */
    const Gradpool__Wire__SnapshotReply *what;
    struct state_tensor *tensors;
    struct state_writer writer;
    size_t at;     /* index of the tensor whose arrays are being received */
    uint64_t have; /* number of bytes of these arrays that were received */
    uint64_t bytes;
    /* empty unless the job has tables, and no tensor with an update rule */
    struct tables_copy *tables;
    char *arrays;
    uint64_t begun_ns, stood_ns;
};

/* --- the command line --- */

static int set(void *context, int index, const char *value, struct err *err)
{
    struct request *r = context;
    switch (index) {
    case TENANT: r->tenant = value; return 0;
    case OUTPUT: r->output = value; return 0;
    default: return operator_set(&r->options, index, value, err);
    }
}

static void parse(int argc, char **argv, struct request *ret_request)
{
    static const struct knob_command command = {
        .name = "gradpool snapshot",
        .operands = "JOB",
        .knobs = snapshot_knobs,
        .set = set,
        .operand = operator_set_job,
        .before = "Writes parameters, moments and step counts to a file on this host while the "
                  "job trains: of all tensors with an update rule, and all after the same "
                  "iteration. Rounds of the job wait while the values are read. Of a job with "
                  "tables of keyed rows, and no tensor with an update rule, the file has the rows "
                  "of all tables, all of one clock. gp_job_restore() reads the file. The command "
                  "never leaves an incomplete file: an earlier file "
                  "of this name is replaced only by a complete one.",
        .after = "Examples:\n"
                 "  gradpool snapshot resnet-7 --output /backup/resnet-7.snapshot\n\n"
                 "This command refuses jobs with a tensor that is not updated exactly once an "
                 "iteration, or whose rounds do not need all ranks, and jobs that "
                 "have tables and such tensors. Only the ranks of such a job know when an "
                 "iteration ends: use gp_job_snapshot().\n\n"
                 "Exit code: 0 written; 1 failed; 2 a mistake on the command line; 3 no service "
                 "there, or no such job."};
    *ret_request =
        (struct request){.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT}, .tenant = ""};
    knobs_parse(&command, argc, argv, ret_request);
}

/* --- requests --- */

static int explain(struct fetch *f, int error, struct err *err)
{
    return operator_explain(f->endpoint, f->conversation.channel, error, err);
}

static int ask_to_stand(struct fetch *f, const struct request *wanted, struct err *err)
{
    const struct state_wish wish = {.job = wanted->options.job, .tenant = wanted->tenant};
    int error = explain(f, state_fetch_begin(&f->conversation, &wish, err), err);
    f->what = f->conversation.what;
    f->begun_ns = clock_now_ns();
    return error;
}

static int let_go_on(struct fetch *f, struct err *err)
{
    int error = explain(f, state_fetch_end(&f->conversation, err), err);
    f->stood_ns = clock_now_ns() - f->begun_ns;
    return error;
}

/* --- the file --- */

static int begin_file(struct fetch *f, const char *path, struct err *err)
{
    uint64_t longest = 0;
    f->tensors = calloc(f->what->n_tensors + 1, sizeof *f->tensors);
    for (size_t i = 0; f->tensors && i < f->what->n_tensors; i++) {
        const Gradpool__Wire__SnapshotTensor *t = f->what->tensors[i];
        f->tensors[i] = (struct state_tensor){.name = t->name,
                                              .dtype = (uint8_t)t->dtype,
                                              .rule = (uint8_t)t->rule,
                                              .elements = t->elements};
        uint64_t bytes = state_tensor_bytes(&f->tensors[i]);
        longest = bytes > longest ? bytes : longest;
        f->bytes += bytes;
    }
    f->arrays = malloc(longest + 1);
    if (!f->tensors || !f->arrays)
        return err_set(err, -ENOMEM,
                       "snapshot %s: this process has no memory for the longest tensor, %zu bytes; "
                       "raise its memory limit",
                       path, (size_t)longest);
    return state_write_begin(path, f->tensors, f->what->n_tensors, &f->writer, err);
}

/* Writes the tensors whose arrays are complete. A tensor without elements has no arrays. */
static int write_whole(struct fetch *f, struct err *err)
{
    int error = 0;
    while (error == 0 && f->at < f->what->n_tensors &&
           f->have == state_tensor_bytes(&f->tensors[f->at])) {
        error = state_write_put(&f->writer, f->at, f->what->tensors[f->at]->steps, f->what->round,
                                f->arrays, err);
        f->at++;
        f->have = 0;
    }
    return error;
}

static int take_part(void *context, size_t tensor, uint64_t offset, const void *data,
                     size_t part_bytes, struct err *err)
{
    struct fetch *f = context;
    int error = write_whole(f, err);
    if (error < 0)
        return error;
    uint64_t bytes = f->at < f->what->n_tensors ? state_tensor_bytes(&f->tensors[f->at]) : 0;
    if (tensor != f->at || part_bytes == 0 || part_bytes > bytes - f->have || offset > bytes ||
        part_bytes > bytes - offset)
        return err_set(err, -EBADMSG,
                       "the service sent bytes beyond the end of a tensor; install one version of "
                       "gradpool on all hosts");
    memcpy(f->arrays + offset, data, part_bytes);
    f->have += part_bytes;
    return 0;
}

static int take_all(struct fetch *f, struct err *err)
{
    int64_t count;
    while ((count = state_fetch_next(&f->conversation, take_part, f, err)) > 0)
        continue;
    if (count < 0)
        return explain(f, (int)count, err);
    int error = write_whole(f, err);
    return error == 0 && f->at < f->what->n_tensors
               ? err_set(err, -EBADMSG,
                         "the service did not send all parts of the snapshot; try again")
               : error;
}

/* Fetches the rows of all tables. Tables with BSP are held at one clock. */
static int take_tables(struct fetch *f, const struct request *wanted, struct err *err)
{
    struct tables_copy *t = f->tables;
    t->channel = f->conversation.channel;
    t->job = wanted->options.job;
    t->tenant = wanted->tenant;
    int error = explain(f, tables_export_begin(t, err), err);
    f->begun_ns = clock_now_ns();
    if (error == 0)
        error = explain(f, tables_export_some(t, &f->writer, UINT64_MAX, err), err);
    f->stood_ns = clock_now_ns() - f->begun_ns;
    return error;
}

/* Checks the path before the request, so that no job waits for a file that cannot be written. */
static int check_place(const char *path, struct err *err)
{
    struct state_writer trial;
    int error = state_write_begin(path, NULL, 0, &trial, err);
    if (error == 0)
        state_write_abandon(&trial);
    return error;
}

/* Fetches the arrays. The snapshot ends before the file is written to the disk, so that the job
 * continues early. */
static int run(struct fetch *f, const struct request *wanted, const char *path, struct err *err)
{
    f->endpoint = wanted->options.endpoint;
    int error = check_place(path, err);
    if (error == 0)
        error = operator_open(f->endpoint, &f->conversation.channel, err);
    if (error == 0)
        error = ask_to_stand(f, wanted, err);
    if (error == 0)
        error = begin_file(f, path, err);
    if (error == 0 && f->what->tables > 0)
        error = take_tables(f, wanted, err);
    else if (error == 0)
        error = take_all(f, err) ?: let_go_on(f, err);
    return error < 0 ? error : state_write_finish(&f->writer, err);
}

/* --- the command --- */

static void snapshot_print_tables(const struct fetch *f, const struct request *wanted,
                                  const char *path)
{
    const struct tables_copy *t = f->tables;
    if (wanted->options.json)
        printf("{\"tables\": %" PRIu64 ", \"rows\": %" PRIu64 ", \"clock\": %" PRIu64
               ", \"stood_ns\": %" PRIu64 "}\n",
               t->tables, t->rows, t->clock, f->stood_ns);
    else
        printf("%s: job %s before clock %" PRIu64 ", %" PRIu64 " table%s with %" PRIu64
               " rows; pushes waited for %.1f ms\n",
               path, wanted->options.job, t->clock, t->tables, t->tables == 1 ? "" : "s", t->rows,
               (double)f->stood_ns / NS_PER_MS);
}

static void print_done(const struct fetch *f, const struct request *wanted, const char *path)
{
    size_t count = f->what->n_tensors;
    if (f->tables->tables > 0)
        snapshot_print_tables(f, wanted, path);
    else if (wanted->options.json)
        printf("{\"round\": %" PRIu64 ", \"tensors\": %zu, \"bytes\": %" PRIu64
               ", \"stood_ns\": %" PRIu64 "}\n",
               f->what->round, count, f->bytes, f->stood_ns);
    else
        printf("%s: job %s after round %" PRIu64 ", %zu tensor%s with %.1f MiB; rounds waited for "
               "%.1f ms\n",
               path, wanted->options.job, f->what->round, count, count == 1 ? "" : "s",
               (double)f->bytes / (1 << 20), (double)f->stood_ns / NS_PER_MS);
}

/* Frees the fetch. The job continues when the connection closes, even after an error. */
static void fetch_free(struct fetch *f)
{
    channel_destroy(f->conversation.channel);
    state_write_abandon(&f->writer); /* has no effect after state_write_finish() */
    state_fetch_free(&f->conversation);
    tables_copy_free(f->tables);
    free(f->tensors);
    free(f->arrays);
}

int cli_snapshot(int argc, char **argv)
{
    struct tables_copy tables = {0};
    struct fetch f = {.writer = {.file = {.fd = -1}}, .tables = &tables};
    struct request wanted;
    struct err err = {0};
    _cleanup_free_ char *path = NULL;
    parse(argc, argv, &wanted);
    if (!wanted.options.job)
        return knobs_mistake("gradpool snapshot", "missing: JOB");
    path = wanted.output ? strdup(wanted.output) : NULL;
    if (!wanted.output && asprintf(&path, "%s.snapshot", wanted.options.job) < 0)
        path = NULL;
    int error = path ? run(&f, &wanted, path, &err)
                     : err_set(&err, -ENOMEM,
                               "this process has no memory for the path of the snapshot; raise its "
                               "memory limit");
    if (error < 0)
        fprintf(stderr, "gradpool: %s\n", err.text);
    else
        print_done(&f, &wanted, path);
    bool is_nothing =
        error == -EHOSTDOWN || (error == -ENOENT && f.conversation.channel && !f.what);
    fetch_free(&f);
    return error == 0 ? CLI_OK : is_nothing ? CLI_NOTHING : CLI_FAILED;
}
