/* The store in one SQLite file with a write-ahead log. Only this file uses SQLite. Tables are data
 * (store_schema.c), so all tables use the same code. */
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/base/system/shortage.h"
#include "svc/base/text.h"
#include "svc/coordinator/store/store_marker.h"
#include "svc/coordinator/store/store_schema.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Table with the count of changes. This table is not in store_schema.c. */
#define CHANGES_TABLE \
    "CREATE TABLE IF NOT EXISTS changes(one INTEGER PRIMARY KEY, count INTEGER NOT NULL)"
#define CHANGES_PUT "INSERT INTO changes VALUES(1, ?1) ON CONFLICT DO UPDATE SET count=?1"
/* More than the size of the log between two checkpoints. Under a lower limit of the file size
 * (RLIMIT_FSIZE), writes may fail. */
#define FILE_BYTES_ENOUGH (UINT64_C(16) << 20)

struct store_sqlite {
    struct store store;
    sqlite3 *db;
    char *path;
    sqlite3_stmt *put[STORE_TABLES], *erase[STORE_TABLES];
    int failed;      /* first SQLite error of the open transaction */
    bool is_changed; /* the open transaction has a put or an erase */
    dev_t device;
    ino_t file;   /* inode of the opened database */
    bool is_gone; /* the file was removed, and this was logged */
    struct store_marker marker;
    sqlite3_stmt *count; /* statement that increments the count of changes */
};

static struct store_sqlite *of(struct store *store) { return (struct store_sqlite *)store; }

static int errno_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW: return 0;
    case SQLITE_FULL: return -ENOSPC;
    case SQLITE_READONLY: return -EROFS;
    case SQLITE_NOMEM: return -ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return -EBUSY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return -EBADMSG;
    case SQLITE_CANTOPEN: return -EACCES;
    default: return -EIO;
    }
}

/* Returns a negative errno if a limit of file size or descriptors was exceeded, or 0. SQLite's
 * codes do not distinguish these limits. Some failed writes change errno, so the limit of the file
 * size is tested directly. */
static int limit_of(const struct store_sqlite *s, int code)
{
    int error = s->db ? sqlite3_system_errno(s->db) : 0;
    if ((code & 0xff) == SQLITE_IOERR && !shortage_file_fits(FILE_BYTES_ENOUGH))
        return -EFBIG;
    return error == EFBIG || error == EMFILE || error == ENFILE ? -error : 0;
}

static int damaged(const struct store_sqlite *s, const char *complaint, struct err *err)
{
    return err_set(err, -EBADMSG,
                   "%s is damaged (%s). Restore the file from a copy; or move %s* away, to start "
                   "without jobs and tenants",
                   s->path, complaint, s->path);
}

static int failure(struct store_sqlite *s, int code, const char *what, struct err *err)
{
    char lack[SHORTAGE_BYTES];
    int limit = limit_of(s, code), error = limit ? limit : errno_of(code);
    if (error == -EBADMSG)
        return damaged(s, sqlite3_errmsg(s->db), err);
    return err_set(err, error, "cannot %s %s: %s (%s)", what, s->path,
                   shortage_text(error, SHORTAGE_OTHER, lack, sizeof lack),
                   s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(code));
}

static int blob_bytes(enum column_type type)
{
    if (type == COLUMN_BACKUP)
        return STORE_BACKUP_BYTES;
    return type == COLUMN_TERMS ? STORE_TERMS_BYTES : STORE_RANKS_BYTES;
}

static int bind_column(sqlite3_stmt *statement, int index, const struct store_column *column,
                       const struct store_row *row)
{
    const void *field = (const char *)row + column->offset;
    switch (column->type) {
    case COLUMN_U32: return sqlite3_bind_int64(statement, index, *(const uint32_t *)field);
    case COLUMN_I32: return sqlite3_bind_int64(statement, index, *(const int32_t *)field);
    case COLUMN_U64: return sqlite3_bind_int64(statement, index, *(const int64_t *)field);
    case COLUMN_TEXT:
        return sqlite3_bind_text(statement, index, *(const char *const *)field, -1, SQLITE_STATIC);
    case COLUMN_RANKS:
    case COLUMN_TERMS:
    case COLUMN_BACKUP:
        return sqlite3_bind_blob(statement, index, *(const void *const *)field,
                                 blob_bytes(column->type), SQLITE_STATIC);
    case COLUMN_BLOB: {
        const struct store_blob *blob = field;
        return sqlite3_bind_blob(statement, index, blob->bytes ? blob->data : "", (int)blob->bytes,
                                 SQLITE_STATIC);
    }
    }
    return SQLITE_ERROR;
}

static int run(sqlite3_stmt *statement, const struct table_schema *table, int columns,
               const struct store_row *row)
{
    int code = SQLITE_OK;
    for (int i = 0; i < columns && code == SQLITE_OK; i++)
        code = bind_column(statement, i + 1, &table->columns[i], row);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static void sqlite_begin(struct store *store)
{
    of(store)->is_changed = false;
    of(store)->failed = sqlite3_exec(of(store)->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
}

static void sqlite_put(struct store *store, const struct store_row *row)
{
    const struct table_schema *table = &schema_tables[row->table];
    of(store)->is_changed = true;
    if (of(store)->failed == SQLITE_OK)
        of(store)->failed = run(of(store)->put[row->table], table, schema_columns(table), row);
}

static void sqlite_erase(struct store *store, const struct store_row *row)
{
    const struct table_schema *table = &schema_tables[row->table];
    of(store)->is_changed = true;
    if (of(store)->failed == SQLITE_OK)
        of(store)->failed = run(of(store)->erase[row->table], table, table->keys, row);
}

/* Logs once that the file was removed or replaced. Requests still succeed: SQLite writes to the
 * removed file, so data is lost only when this process ends. */
static void check_place(struct store_sqlite *s)
{
    struct stat there;
    bool is_ours =
        stat(s->path, &there) == 0 && there.st_dev == s->device && there.st_ino == s->file;
    if (is_ours || s->is_gone)
        return;
    s->is_gone = true;
    log_error("%s was removed or replaced while in use: gradpool serve still has jobs, routes and "
              "tenants' keys in memory, but loses them when it ends; commands over the Unix socket "
              "do not work. Let jobs finish, then start gradpool serve again",
              s->path);
}

static int count_change(struct store_sqlite *s)
{
    int code = sqlite3_bind_int64(s->count, 1, (int64_t)s->marker.changes + 1);
    if (code == SQLITE_OK)
        code = sqlite3_step(s->count);
    sqlite3_reset(s->count);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int sqlite_commit(struct store *store, struct err *err)
{
    struct store_sqlite *s = of(store);
    int code = s->failed;
    if (code == SQLITE_OK && s->is_changed)
        code = count_change(s);
    if (code == SQLITE_OK)
        code = sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
    check_place(s);
    if (code == SQLITE_OK && s->is_changed) {
        s->marker.changes++;
        store_marker_write(&s->marker);
    }
    if (code == SQLITE_OK)
        return 0;
    int error = failure(s, code, "write", err);
    sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL); /* fails if SQLite has rolled back already */
    return error;
}

static int read_column(sqlite3_stmt *statement, int index, const struct store_column *column,
                       struct store_row *row)
{
    void *field = (char *)row + column->offset;
    int64_t value = sqlite3_column_int64(statement, index);
    switch (column->type) {
    case COLUMN_U32:
        *(uint32_t *)field = (uint32_t)value;
        return value < 0 || value > UINT32_MAX ? SQLITE_CORRUPT : SQLITE_OK;
    case COLUMN_I32:
        *(int32_t *)field = (int32_t)value;
        return value < INT32_MIN || value > INT32_MAX ? SQLITE_CORRUPT : SQLITE_OK;
    case COLUMN_U64: *(uint64_t *)field = (uint64_t)value; return SQLITE_OK;
    case COLUMN_TEXT:
        *(const char **)field = (const char *)sqlite3_column_text(statement, index);
        return *(const char **)field ? SQLITE_OK : SQLITE_NOMEM;
    case COLUMN_RANKS:
    case COLUMN_TERMS:
    case COLUMN_BACKUP:
        *(const void **)field = sqlite3_column_blob(statement, index);
        return sqlite3_column_bytes(statement, index) == blob_bytes(column->type) ? SQLITE_OK
                                                                                  : SQLITE_CORRUPT;
    case COLUMN_BLOB:
        *(struct store_blob *)field =
            (struct store_blob){sqlite3_column_blob(statement, index),
                                (uint32_t)sqlite3_column_bytes(statement, index)};
        return SQLITE_OK;
    }
    return SQLITE_ERROR;
}

static int read_row(sqlite3_stmt *statement, enum store_table kind, struct store_row *ret_row)
{
    const struct table_schema *table = &schema_tables[kind];
    int code = SQLITE_OK, count = schema_columns(table);
    memset(ret_row, 0, sizeof *ret_row);
    ret_row->table = kind;
    for (int i = 0; i < count && code == SQLITE_OK; i++)
        code = read_column(statement, i, &table->columns[i], ret_row);
    return code;
}

static void cleanup_statement(sqlite3_stmt **statement) { sqlite3_finalize(*statement); }

static int load_table(struct store_sqlite *s, enum store_table kind,
                      int (*each)(void *context, const struct store_row *row), void *context,
                      struct err *err)
{
    _cleanup_(cleanup_statement) sqlite3_stmt *statement = NULL;
    char sql[SQL_BYTES];
    snprintf(sql, sizeof sql, "SELECT * FROM %s", schema_tables[kind].name);
    int code = sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL);
    if (code != SQLITE_OK)
        return failure(s, code, "read", err);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        struct store_row row;
        code = read_row(statement, kind, &row);
        if (code != SQLITE_OK)
            return failure(s, code, "read", err);
        int error = each(context, &row);
        if (error < 0)
            return err_set(err, error,
                           "%s: a row of table %s contradicts other rows (%s). Restore the file "
                           "from a copy; or move %s* away, to start without jobs and tenants",
                           s->path, schema_tables[kind].name, err_text(error), s->path);
    }
    return code == SQLITE_DONE ? 0 : failure(s, code, "read", err);
}

static int sqlite_load(struct store *store, int (*each)(void *, const struct store_row *),
                       void *context, struct err *err)
{
    for (int kind = 0; kind < STORE_TABLES; kind++) {
        int error = load_table(of(store), (enum store_table)kind, each, context, err);
        if (error < 0)
            return error;
    }
    return 0;
}

static void sqlite_sync(struct store *store)
{
    struct store_sqlite *s = of(store);
    int code = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (code == SQLITE_OK) {
        s->marker.synced = s->marker.changes;
        store_marker_write(&s->marker);
    } else {
        log_warn("%s: the last changes are only in its write-ahead log: %s", s->path,
                 sqlite3_errmsg(s->db));
    }
}

static void sqlite_close(struct store *store)
{
    struct store_sqlite *s = of(store);
    sqlite3_finalize(s->count);
    if (s->marker.fd >= 0)
        close(s->marker.fd);
    for (int kind = 0; kind < STORE_TABLES; kind++) {
        sqlite3_finalize(s->put[kind]);
        sqlite3_finalize(s->erase[kind]);
    }
    sqlite3_close(s->db);
    free(s->path);
    free(s);
}

static const struct store_ops sqlite_ops = {
    .begin = sqlite_begin,
    .put = sqlite_put,
    .erase = sqlite_erase,
    .commit = sqlite_commit,
    .sync = sqlite_sync,
    .load = sqlite_load,
    .close = sqlite_close,
};

static int read_number(void *context, int columns, char **values, char **names)
{
    if (columns == 1)
        (void)text_parse_u64(values[0], 0, UINT32_MAX, context);
    return 0;
}

static int read_complaint(void *context, int columns, char **values, char **names)
{
    char *complaint = context;
    if (columns == 1 && values[0] && !*complaint && strcmp(values[0], "ok") != 0)
        snprintf(complaint, ERR_TEXT_BYTES / 4, "%s", values[0]);
    return 0;
}

/* Checks that the database has all changes that were ever written. Nothing is changed before this
 * check. */
static int check_whole(struct store_sqlite *s, struct err *err)
{
    char complaint[ERR_TEXT_BYTES / 4] = "";
    uint64_t changes = 0;
    int code = sqlite3_exec(s->db, "PRAGMA quick_check(1)", read_complaint, complaint, NULL);
    if (code != SQLITE_OK && !*complaint)
        snprintf(complaint, sizeof complaint, "%s", sqlite3_errmsg(s->db));
    if (*complaint)
        return damaged(s, complaint, err);
    /* Before the first counted change, the table does not exist, so the query fails and the count
     * stays 0. */
    (void)sqlite3_exec(s->db, "SELECT count FROM changes", read_number, &changes, NULL);
    int error = store_marker_check(&s->marker, s->path, changes, err);
    s->marker.changes = changes;
    return error;
}

/* Sets the size of the cache and other options. The cache has room for a declare of 262,144
 * tensors, so that each page is written once, at the commit. With a smaller cache, SQLite would
 * write pages early and read them again. With synchronous=NORMAL, a power failure can lose the last
 * changes; the end of the process cannot. A power failure also ends all local aggregators, so no
 * aggregator has a newer state than the store. */
static int configure(struct store_sqlite *s, uint32_t pages_max)
{
    char sql[SQL_BYTES];
    snprintf(sql, sizeof sql,
             "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
             "PRAGMA foreign_keys=ON; PRAGMA max_page_count=%u;"
             "PRAGMA cache_size=-262144; PRAGMA cache_spill=OFF; PRAGMA wal_autocheckpoint=8192;",
             pages_max ? pages_max : 0xfffffffeu);
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

/* Creates all tables of a new file (version 0), or none. */
static int create_tables(struct store_sqlite *s)
{
    char sql[SQL_BYTES];
    int code = sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (int kind = 0; kind < STORE_TABLES && code == SQLITE_OK; kind++) {
        schema_create(&schema_tables[kind], sql);
        code = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    }
    snprintf(sql, sizeof sql, "PRAGMA user_version=%d; COMMIT", SCHEMA_VERSION);
    return code == SQLITE_OK ? sqlite3_exec(s->db, sql, NULL, NULL, NULL) : code;
}

static int prepare(struct store_sqlite *s)
{
    char sql[SQL_BYTES];
    int code =
        sqlite3_prepare_v3(s->db, CHANGES_PUT, -1, SQLITE_PREPARE_PERSISTENT, &s->count, NULL);
    for (int kind = 0; kind < STORE_TABLES && code == SQLITE_OK; kind++) {
        schema_put(&schema_tables[kind], sql);
        code = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->put[kind], NULL);
        if (code != SQLITE_OK)
            break;
        schema_erase(&schema_tables[kind], sql);
        code = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->erase[kind], NULL);
    }
    return code;
}

static int open_tables(struct store_sqlite *s, uint32_t pages_max, struct err *err)
{
    uint64_t version = 0;
    int code = sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (code == SQLITE_OK)
        code = configure(s, pages_max);
    if (code == SQLITE_OK)
        code = sqlite3_exec(s->db, "PRAGMA user_version", read_number, &version, NULL);
    if (code != SQLITE_OK)
        return failure(s, code, "open", err);
    if (version != 0 && version != SCHEMA_VERSION)
        return err_set(err, -EPROTO,
                       "%s was written by another version of gradpool (schema %u, this version "
                       "reads %d): use that version, or another --state-dir",
                       s->path, (unsigned)version, SCHEMA_VERSION);
    int error = check_whole(s, err);
    if (error < 0)
        return error;
    code = version == 0 ? create_tables(s) : SQLITE_OK;
    if (code == SQLITE_OK)
        code = sqlite3_exec(s->db, CHANGES_TABLE, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = prepare(s);
    return code == SQLITE_OK ? 0 : failure(s, code, "open", err);
}

/* Writes the marker. Lost changes are detected from then on. */
static int mark(struct store_sqlite *s, struct err *err)
{
    int error = store_marker_open(&s->marker, err);
    if (error < 0)
        return error;
    sqlite_begin(&s->store);
    s->is_changed = true;
    error = sqlite_commit(&s->store, err);
    if (error < 0)
        return error;
    sqlite_sync(&s->store);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return 0;
}

/* Creates or opens the file with mode 0600, because it contains the tenants' keys. SQLite creates
 * its other files with the same mode. */
static int make_private(struct store_sqlite *s, struct err *err)
{
    struct stat file;
    _cleanup_fd_ int fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ELOOP)
        return err_set(err, -ELOOP,
                       "%s is a symbolic link, which gradpool serve does not follow: put the file "
                       "itself there, or remove the link",
                       s->path);
    if (fd < 0 || fchmod(fd, 0600) < 0 || fstat(fd, &file) < 0)
        return err_set(err, -errno, "cannot open %s: %s", s->path, err_text(-errno));
    s->device = file.st_dev;
    s->file = file.st_ino;
    return 0;
}

int store_sqlite_open(const char *path, uint32_t pages_max, struct store **ret_store,
                      struct err *err)
{
    struct store_sqlite *s = calloc(1, sizeof *s);
    char *copy = strdup(path);
    if (!s || !copy) {
        free(s);
        free(copy);
        return err_set(err, -ENOMEM,
                       "gradpool serve has no memory to open %s; raise its memory limit", path);
    }
    s->store.ops = &sqlite_ops;
    s->path = copy;
    s->marker.fd = -1;
    int error = store_marker_read(path, &s->marker, err);
    if (error == 0)
        error = store_marker_check_file(&s->marker, path, err);
    if (error == 0)
        error = make_private(s, err);
    if (error == 0) {
        int code = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
        error = code == SQLITE_OK ? open_tables(s, pages_max, err) : failure(s, code, "open", err);
    }
    if (error == 0)
        error = mark(s, err);
    if (error < 0) {
        sqlite_close(&s->store);
        return error;
    }
    *ret_store = &s->store;
    return 0;
}

void store_sqlite_library(struct library *ret_row)
{
    ret_row->name = "sqlite";
    snprintf(ret_row->built, sizeof ret_row->built, "%s", SQLITE_VERSION);
    snprintf(ret_row->running, sizeof ret_row->running, "%s", sqlite3_libversion());
}
