/* Requests to a coordinator about the rows of all tables of a job. The functions block, but never
 * beyond their deadlines. README: D3, D5. */
#include "svc/state/tables/tables_copy.h"

#include "svc/base/clock.h"
#include "svc/channel/table_spec.h"
#include "svc/state/table_fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the source of an import ---- */

/* A table of the file. */
struct source_table {
    struct table_file *file;
    uint64_t largest_key;
    uint32_t place; /* index of the table in the reply of the coordinator */
};

struct tables_source {
    struct source_table *tables;
    size_t count;
    uint64_t bytes; /* bytes of all rows */
    bool is_inside; /* the last one of `tables` has rows that were not read yet */
    char part[TABLE_FILE_PART_BYTES_MAX];
};

static int source_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM,
                   "this process has no memory for the rows of a table; raise its memory limit");
}

static int source_add(struct tables_source *s, const struct table_file *file, struct err *err)
{
    struct source_table *grown = realloc(s->tables, (s->count + 1) * sizeof *grown);
    struct table_file *copy = grown ? malloc(sizeof *copy) : NULL;
    s->tables = grown ? grown : s->tables;
    if (!copy)
        return source_no_memory(err);
    *copy = *file;
    s->tables[s->count++] = (struct source_table){.file = copy};
    return 0;
}

/* Reads the next part of the last table of the source. After the last part the table is rewound for
 * the import. Returns 1 or an error. */
static int source_read(struct tables_source *s, struct err *err)
{
    struct source_table *t = &s->tables[s->count - 1];
    size_t row_bytes = table_file_row_bytes(&t->file->head.terms);
    int64_t bytes = table_file_next(t->file, s->part, err);
    if (bytes < 0)
        return (int)bytes;
    for (const char *row = s->part; row < s->part + bytes; row += row_bytes) {
        uint64_t key;
        memcpy(&key, row, sizeof key);
        t->largest_key = key > t->largest_key ? key : t->largest_key;
    }
    s->bytes += (uint64_t)bytes;
    s->is_inside = bytes > 0;
    if (bytes == 0)
        table_file_rewind(t->file);
    return 1;
}

/* Adds the next table of the file to the source. Returns 1, 0 if the file has no further table, or
 * an error. */
static int source_next(struct tables_source *s, const struct state_file *f, struct err *err)
{
    struct table_file file = s->count > 0 ? *s->tables[s->count - 1].file : (struct table_file){0};
    int more = state_file_next_table(f, &file, err);
    int error = more > 0 ? source_add(s, &file, err) : 0;
    s->is_inside = true;
    return error < 0 ? error : more;
}

int tables_import_check(struct tables_copy *c, const struct state_file *f, uint64_t until_ns,
                        struct err *err)
{
    struct tables_source *s = c->source ?: calloc(1, sizeof *s);
    int more = s ? 1 : source_no_memory(err);
    c->source = s;
    while (more > 0) {
        more = s->is_inside ? source_read(s, err) : source_next(s, f, err);
        if (clock_now_ns() >= until_ns)
            break;
    }
    return more;
}

/* ---- requests ---- */

/* Returns the reply to the first request. */
static const Gradpool__Wire__TableFileReply *copy_reply(const struct tables_copy *c)
{
    return c->begun->table_file_reply;
}

static int copy_begin(struct tables_copy *c, Gradpool__Wire__TableFileStep step, uint64_t bytes,
                      struct err *err)
{
    int error =
        table_fetch_ask(c->channel,
                        &MESSAGE_PART(TableFileRequest, table_file_request, .step = step,
                                      .job = (char *)c->job, .tenant = (char *)c->tenant,
                                      .between = c->is_between, .bytes = bytes, .clock = c->clock),
                        TABLE_FETCH_HOLD_TIMEOUT_MS, &c->begun, err);
    if (error < 0)
        return error;
    c->clock = copy_reply(c)->clock;
    c->tables = copy_reply(c)->n_tables;
    for (size_t i = 0; i < c->tables; i++)
        if (!copy_reply(c)->tables[i]->spec)
            error = -EBADMSG;
    return error == 0 && c->tables > 0
               ? 0
               : err_set(err, -EBADMSG,
                         "the service sent a table without terms; install one version of gradpool "
                         "on all hosts");
}

static int copy_order(const struct tables_copy *c, Gradpool__Wire__TableFileRequest request,
                      struct err *err)
{
    envelope *reply = NULL;
    request.file = copy_reply(c)->file;
    int error = table_fetch_ask(c->channel, &request, TABLE_FETCH_PART_TIMEOUT_MS, &reply, err);
    if (error == 0)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

void tables_copy_free(struct tables_copy *c)
{
    gradpool__wire__envelope__free_unpacked(c->begun, NULL);
    for (size_t i = 0; c->source && i < c->source->count; i++)
        free(c->source->tables[i].file);
    if (c->source)
        free(c->source->tables);
    free(c->source);
    free(c->target);
    c->begun = NULL;
    c->source = NULL;
    c->target = NULL;
}

/* ---- export ---- */

/* The table that is being written. */
struct tables_target {
    bool is_open;
    struct table_file_head *head; /* points to the memory behind this struct */
    struct table_file_writer writer;
};

int tables_export_begin(struct tables_copy *c, struct err *err)
{
    c->target = calloc(1, sizeof *c->target + sizeof *c->target->head);
    if (!c->target)
        return source_no_memory(err);
    c->target->head = (struct table_file_head *)(c->target + 1);
    return copy_begin(c, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_EXPORT, 0, err);
}

static int export_open(struct tables_copy *c, struct state_writer *w, struct err *err)
{
    const Gradpool__Wire__TableFileTable *table = copy_reply(c)->tables[c->at];
    struct tables_target *to = c->target;
    *to->head = (struct table_file_head){
        .terms = table_spec_terms(table->spec), .steps = table->steps, .clock = table->clock};
    snprintf(to->head->name, sizeof to->head->name, "%s", table->spec->name);
    to->is_open = true;
    return state_write_begin_table(w, to->head, &to->writer, err);
}

static int export_close(struct tables_copy *c, struct state_writer *w, struct err *err)
{
    const Gradpool__Wire__TableFileTable *table = copy_reply(c)->tables[c->at++];
    c->target->is_open = false;
    c->rows += c->target->writer.rows;
    if (c->target->writer.rows != table->count)
        return err_set(err, -EBADMSG,
                       "the service sent %" PRIu64 " rows of table %s, which has %" PRIu64
                       "; export again",
                       c->target->writer.rows, c->target->head->name, table->count);
    return state_write_end_table(w, &c->target->writer, err);
}

static int export_part(struct tables_copy *c, struct state_writer *w, struct err *err)
{
    envelope *reply = NULL;
    int error = c->target->is_open ? 0 : export_open(c, w, err);
    if (error < 0)
        return error;
    error = table_fetch_ask(c->channel,
                            &MESSAGE_PART(TableFileRequest, table_file_request,
                                          .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_NEXT,
                                          .file = copy_reply(c)->file),
                            TABLE_FETCH_PART_TIMEOUT_MS, &reply, err);
    if (error < 0)
        return error;
    const Gradpool__Wire__TableFileReply *part = reply->table_file_reply;
    error = part->is_end ? export_close(c, w, err)
                         : table_file_put(&c->target->writer, part->rows.data, part->rows.len, err);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

int tables_export_some(struct tables_copy *c, struct state_writer *w, uint64_t until_ns,
                       struct err *err)
{
    int error = 0;
    while (error == 0 && c->at < c->tables) {
        error = export_part(c, w, err);
        if (clock_now_ns() >= until_ns)
            break;
    }
    if (error < 0 || c->at < c->tables)
        return error < 0 ? error : 1;
    return copy_order(c,
                      MESSAGE_PART(TableFileRequest, table_file_request,
                                   .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_END),
                      err);
}

/* ---- import ---- */

/* Finds a table of the job in the file. NULL: the file lacks the table. */
static struct source_table *import_find(const struct tables_source *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->tables[i].file->head.name, name) == 0)
            return &s->tables[i];
    return NULL;
}

static int import_check_key(const struct source_table *t, const struct table_terms *terms,
                            struct err *err)
{
    if (terms->keys == 0 || t->file->head.rows == 0 || t->largest_key < terms->keys)
        return 0;
    return err_set(err, -ERANGE,
                   "the snapshot has key %" PRIu64 " of table '%s', but this table has keys below "
                   "%" PRIu64 "; declare the table with more keys, or without a bound (0)",
                   t->largest_key, t->file->head.name, terms->keys);
}

static int import_match_table(struct tables_copy *c, uint32_t place, struct err *err)
{
    const Gradpool__Wire__TableSpec *spec = copy_reply(c)->tables[place]->spec;
    struct source_table *t = import_find(c->source, spec->name);
    const struct table_terms terms = table_spec_terms(spec);
    if (!t)
        return err_set(err, -EINVAL,
                       "the snapshot has no table '%s'; restore the file that was saved with this "
                       "model",
                       spec->name);
    t->place = place;
    return table_file_match(&t->file->head, &terms, spec->name, err)
               ?: import_check_key(t, &terms, err);
}

int tables_import_begin(struct tables_copy *c, struct err *err)
{
    const struct tables_source *s = c->source;
    int error = copy_begin(c, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_IMPORT, s->bytes, err);
    for (uint32_t place = 0; error == 0 && place < c->tables; place++)
        error = import_match_table(c, place, err);
    if (error == 0 && s->count != c->tables)
        error = err_set(err, -EINVAL,
                        "the snapshot has %zu tables, but job %s has declared %zu; declare the "
                        "tables of the saved model",
                        s->count, c->job, c->tables);
    return error;
}

static int import_part(struct tables_copy *c, struct err *err)
{
    struct source_table *t = &c->source->tables[c->at];
    int64_t bytes = table_file_next(t->file, c->source->part, err);
    if (bytes <= 0) {
        c->at++;
        c->rows += t->file->rows;
        return (int)bytes;
    }
    return copy_order(c,
                      MESSAGE_PART(TableFileRequest, table_file_request,
                                   .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_PUT,
                                   .place = t->place,
                                   .rows = {(size_t)bytes, (uint8_t *)c->source->part}),
                      err);
}

static int import_end(struct tables_copy *c, struct err *err)
{
    uint64_t *steps = calloc(c->source->count, sizeof *steps);
    if (!steps)
        return source_no_memory(err);
    for (size_t i = 0; i < c->source->count; i++)
        steps[c->source->tables[i].place] = c->source->tables[i].file->head.steps;
    int error = copy_order(c,
                           MESSAGE_PART(TableFileRequest, table_file_request,
                                        .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_END,
                                        .all_steps = steps, .n_all_steps = c->source->count),
                           err);
    free(steps);
    return error;
}

int tables_import_some(struct tables_copy *c, uint64_t until_ns, struct err *err)
{
    int error = 0;
    while (error == 0 && c->at < c->source->count) {
        error = import_part(c, err);
        if (clock_now_ns() >= until_ns)
            break;
    }
    if (error < 0 || c->at < c->source->count)
        return error < 0 ? error : 1;
    return import_end(c, err);
}
