/* Requests to a coordinator about the rows of a table, and the file of these rows. The functions
 * block, but never beyond their deadlines. README: D3, D4. */
#include "svc/state/table_fetch.h"

#include "svc/channel/table_spec.h"
#include "svc/state/table_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests ---- */

int table_fetch_ask(struct channel *channel, Gradpool__Wire__TableFileRequest *request,
                    int timeout_ms, envelope **ret_reply, struct err *err)
{
    return channel_ask(channel, &ENVELOPE(0, TABLE_FILE_REQUEST, table_file_request, request),
                       timeout_ms, GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_FILE_REPLY, ret_reply, err);
}

static int fetch_ask(struct table_fetch *f, Gradpool__Wire__TableFileRequest request,
                     int timeout_ms, envelope **ret_reply, struct err *err)
{
    request.file = f->what ? f->what->file : 0;
    f->has_asked = true;
    return table_fetch_ask(f->channel, &request, timeout_ms, ret_reply, err);
}

/* Sends a request whose reply has no content. */
static int fetch_order(struct table_fetch *f, Gradpool__Wire__TableFileRequest request,
                       struct err *err)
{
    envelope *reply = NULL;
    int error = fetch_ask(f, request, TABLE_FETCH_PART_TIMEOUT_MS, &reply, err);
    if (error == 0)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

static int fetch_begin(struct table_fetch *f, Gradpool__Wire__TableFileStep step, struct err *err)
{
    int error = fetch_ask(f,
                          MESSAGE_PART(TableFileRequest, table_file_request, .step = step,
                                       .job = (char *)f->job, .tenant = (char *)f->tenant,
                                       .table = (char *)f->table),
                          TABLE_FETCH_HOLD_TIMEOUT_MS, &f->begun, err);
    if (error < 0)
        return error;
    f->what = f->begun->table_file_reply;
    f->clock = f->what->clock;
    f->has_begun = true;
    return f->what->spec ? 0
                         : err_set(err, -EBADMSG,
                                   "the service sent a table without terms; install one version of "
                                   "gradpool on all hosts");
}

static int fetch_end(struct table_fetch *f, uint64_t steps, struct err *err)
{
    return fetch_order(f,
                       MESSAGE_PART(TableFileRequest, table_file_request,
                                    .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_END,
                                    .steps = steps),
                       err);
}

void table_fetch_free(struct table_fetch *f)
{
    gradpool__wire__envelope__free_unpacked(f->begun, NULL);
    free(f->part);
    f->begun = NULL;
    f->what = NULL;
    f->part = NULL;
}

/* ---- export ---- */

/* Writes the next rows. Returns 1, 0 if all rows were read, or an error. */
static int export_next(struct table_fetch *f, struct table_file_writer *w, struct err *err)
{
    envelope *reply = NULL;
    int error = fetch_ask(f,
                          MESSAGE_PART(TableFileRequest, table_file_request,
                                       .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_NEXT),
                          TABLE_FETCH_PART_TIMEOUT_MS, &reply, err);
    if (error < 0)
        return error;
    const Gradpool__Wire__TableFileReply *part = reply->table_file_reply;
    if (!part->is_end)
        error = table_file_put(w, part->rows.data, part->rows.len, err);
    int result = error < 0 ? error : !part->is_end;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return result;
}

static int export_all(struct table_fetch *f, struct table_file_writer *w, struct err *err)
{
    int more = 1;
    while (more > 0)
        more = export_next(f, w, err);
    f->rows = w->rows;
    if (more == 0 && w->rows != f->what->count)
        return err_set(err, -EBADMSG,
                       "the service sent %" PRIu64 " rows of table %s, which has %" PRIu64
                       "; export again",
                       w->rows, f->table, f->what->count);
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

int table_fetch_export(struct table_fetch *f, struct err *err)
{
    struct table_file_writer w = {.file = {.fd = -1}};
    int error = export_check_path(f->path, err);
    if (error == 0)
        error = fetch_begin(f, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_EXPORT, err);
    if (error < 0)
        return error;
    struct table_file_head head = {
        .terms = table_spec_terms(f->what->spec), .steps = f->what->steps, .clock = f->what->clock};
    snprintf(head.name, sizeof head.name, "%s", f->what->spec->name);
    error = table_file_begin(f->path, &head, &w, err);
    if (error < 0)
        return error;
    error = export_all(f, &w, err);
    if (error == 0)
        error = fetch_end(f, 0, err);
    if (error == 0)
        return table_file_finish(&w, err);
    table_file_abandon(&w);
    return error;
}

/* ---- import ---- */

static void import_note_keys(struct table_fetch *f, const struct table_file *file, int64_t bytes)
{
    size_t row_bytes = table_file_row_bytes(&file->head.terms);
    for (const char *row = f->part; row < f->part + bytes; row += row_bytes) {
        uint64_t key;
        memcpy(&key, row, sizeof key);
        f->largest_key = key > f->largest_key ? key : f->largest_key;
    }
}

/* Reads the whole file once before the import begins, so that a damaged file changes no table. */
static int import_check(struct table_fetch *f, struct table_file *file, struct err *err)
{
    int64_t bytes;
    while ((bytes = table_file_next(file, f->part, err)) > 0)
        import_note_keys(f, file, bytes);
    table_file_rewind(file);
    return (int)bytes;
}

static int import_all(struct table_fetch *f, struct table_file *file, struct err *err)
{
    int error = 0;
    while (error == 0) {
        int64_t bytes = table_file_next(file, f->part, err);
        if (bytes <= 0)
            return (int)bytes;
        error = fetch_order(f,
                            MESSAGE_PART(TableFileRequest, table_file_request,
                                         .step = GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_PUT,
                                         .rows = {(size_t)bytes, (uint8_t *)f->part}),
                            err);
    }
    return error;
}

/* Refuses a file with a key that the table cannot have. No bound includes the key UINT64_MAX, so
 * for this key the table must have no bound. */
static int import_refuse_key(const struct table_fetch *f, uint64_t keys, struct err *err)
{
    char advice[64] = "without a bound of keys (0: any key)";
    if (f->largest_key < UINT64_MAX)
        snprintf(advice, sizeof advice, "with keys of %" PRIu64 " or more (0: any key)",
                 f->largest_key + 1);
    return err_set(err, -ERANGE,
                   "file %s has key %" PRIu64 ", but table '%s' of job %s has keys below %" PRIu64
                   "; declare the table %s",
                   f->path, f->largest_key, f->table, f->job, keys, advice);
}

/* Compares the file with the table. If they do not match, no row has changed. */
static int import_match(struct table_fetch *f, const struct table_file *file, struct err *err)
{
    const struct table_terms terms = table_spec_terms(f->what->spec);
    int error = table_file_match(&file->head, &terms, f->table, err);
    if (error < 0 || terms.keys == 0 || file->head.rows == 0 || f->largest_key < terms.keys)
        return error;
    return import_refuse_key(f, terms.keys, err);
}

static int import_file(struct table_fetch *f, struct table_file *file, struct err *err)
{
    f->part = malloc(TABLE_FILE_PART_BYTES_MAX);
    if (!f->part)
        return err_set(
            err, -ENOMEM,
            "this process has no memory for the rows of a table; raise its memory limit");
    int error = import_check(f, file, err);
    if (error == 0)
        error = fetch_begin(f, GRADPOOL__WIRE__TABLE_FILE_STEP__TABLE_FILE_IMPORT, err);
    if (error == 0)
        error = import_match(f, file, err);
    if (error == 0)
        error = import_all(f, file, err);
    f->rows = file->rows;
    return error < 0 ? error : fetch_end(f, file->head.steps, err);
}

int table_fetch_import(struct table_fetch *f, struct err *err)
{
    struct table_file file;
    int error = table_file_open(f->path, &file, err);
    if (error < 0)
        return error;
    error = import_file(f, &file, err);
    table_file_close(&file);
    return error;
}
