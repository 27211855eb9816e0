/* Tables of the SQLite store as data. A new field needs one more line here. */
#include "svc/coordinator/store/store_schema.h"

#include "svc/base/text.h"

#include <stdbool.h>

/* clang-format off */
#define COLUMN(kind, field, column_type) \
    {#field, COLUMN_##column_type, offsetof(struct store_row, kind.field)}

const struct table_schema schema_tables[STORE_TABLES] = {
    [STORE_SERVICE] = {"service",
                       1,
                       "",
                       {COLUMN(service, key, U32), COLUMN(service, incarnation, U64),
                        COLUMN(service, next_aggregator, U32), COLUMN(service, next_lane, U32),
                        COLUMN(service, next_job, U32), COLUMN(service, next_task, U32)}},
    [STORE_TENANT] = {"tenants",
                      1,
                      "",
                      {COLUMN(tenant, name, TEXT), COLUMN(tenant, secret, TEXT),
                       COLUMN(tenant, is_operator, U32), COLUMN(tenant, is_revoked, U32),
                       COLUMN(tenant, added_s, U64), COLUMN(tenant, loss_limit_ppm, U32),
                       COLUMN(tenant, limits, TEXT)}},
    [STORE_AGGREGATOR] = {"aggregators",
                          1,
                          "",
                          {COLUMN(aggregator, aggregator, U32),
                           COLUMN(aggregator, incarnation, U64), COLUMN(aggregator, identity, U64),
                           COLUMN(aggregator, pid, U32), COLUMN(aggregator, slot, U32),
                           COLUMN(aggregator, node, TEXT)}},
    [STORE_LANE] = {"lanes",
                    1,
                    ", FOREIGN KEY(aggregator) REFERENCES aggregators ON DELETE CASCADE",
                    {COLUMN(lane, lane, U32), COLUMN(lane, aggregator, U32),
                     COLUMN(lane, index, U32), COLUMN(lane, core, U32), COLUMN(lane, pu, U32),
                     COLUMN(lane, numa, I32), COLUMN(lane, memory_bytes, U64),
                     COLUMN(lane, shm, TEXT), COLUMN(lane, ofi, TEXT)}},
    [STORE_JOB] =
        {"jobs",
         1,
         "",
         {COLUMN(job, job, U32), COLUMN(job, tenant, TEXT), COLUMN(job, name, TEXT),
          COLUMN(job, workers, U32), COLUMN(job, epoch, U32), COLUMN(job, next_tensor, U32),
          COLUMN(job, next_piece, U32), COLUMN(job, failure, TEXT), COLUMN(job, layout, U32),
          COLUMN(job, loss_limit_ppm, U32), COLUMN(job, founding, U32), COLUMN(job, wanted, U32),
          COLUMN(job, version, U32), COLUMN(job, flags, U32), COLUMN(job, backup, BACKUP),
          COLUMN(job, ordered_until_ns, U64), COLUMN(job, rest, U32)}},
    [STORE_SESSION] =
        {"sessions",
         2,
         ", FOREIGN KEY(job) REFERENCES jobs ON DELETE CASCADE",
         {COLUMN(session, job, U32), COLUMN(session, rank, U32), COLUMN(session, session, U64),
          COLUMN(session, identity, U64), COLUMN(session, pid, U32), COLUMN(session, state, U32),
          COLUMN(session, node, TEXT), COLUMN(session, entered, U32),
          COLUMN(session, was_removed, U32)}},
    [STORE_TENSOR] =
        {"tensors",
         2,
         ", FOREIGN KEY(job) REFERENCES jobs ON DELETE CASCADE",
         {COLUMN(tensor, job, U32), COLUMN(tensor, tensor, U32), COLUMN(tensor, name, TEXT),
          COLUMN(tensor, dtype, U32), COLUMN(tensor, elements, U64), COLUMN(tensor, failure, TEXT),
          COLUMN(tensor, ranks, RANKS), COLUMN(tensor, terms, TERMS),
          COLUMN(tensor, members, RANKS), COLUMN(tensor, grouped, U32),
          COLUMN(tensor, committed, U64)}},
    [STORE_PIECE] =
        {"pieces",
         3,
         ", FOREIGN KEY(job, tensor) REFERENCES tensors ON DELETE CASCADE",
         {COLUMN(piece, job, U32), COLUMN(piece, tensor, U32), COLUMN(piece, piece, U32),
          COLUMN(piece, task, U32), COLUMN(piece, lane, U32), COLUMN(piece, epoch, U32),
          COLUMN(piece, first, U64), COLUMN(piece, elements, U64), COLUMN(piece, lost_epoch, U32),
          COLUMN(piece, keeper, U32), COLUMN(piece, former_keeper, U32)}},
    [STORE_PROFILE] =
        {"profiles",
         4,
         "",
         {COLUMN(profile, tenant, TEXT), COLUMN(profile, job, TEXT), COLUMN(profile, workers, U32),
          COLUMN(profile, layout, U32), COLUMN(profile, turn, U64), COLUMN(profile, period_ns, U64),
          COLUMN(profile, busiest_ns, U64), COLUMN(profile, lanes_ns, U64),
          COLUMN(profile, span_ns, U64), COLUMN(profile, burst_ns, U64),
          COLUMN(profile, slack_ns, U64), COLUMN(profile, tensors, BLOB),
          COLUMN(profile, is_alone, U32), COLUMN(profile, few, U32), COLUMN(profile, enough, U32),
          COLUMN(profile, spent_ppm, U32)}},
    [STORE_POOL_JOB] =
        {"pool_jobs",
         2,
         "",
         {COLUMN(pool_job, tenant, TEXT), COLUMN(pool_job, job, TEXT), COLUMN(pool_job, site, TEXT),
          COLUMN(pool_job, study, TEXT), COLUMN(pool_job, node, TEXT), COLUMN(pool_job, pid, U32),
          COLUMN(pool_job, pool, U64), COLUMN(pool_job, workers_min, U32),
          COLUMN(pool_job, workers_max, U32), COLUMN(pool_job, first, U32),
          COLUMN(pool_job, steps, U64), COLUMN(pool_job, flags, U32),
          COLUMN(pool_job, end_code, I32), COLUMN(pool_job, end_text, TEXT)}},
    [STORE_POOL_WORKER] =
        {"pool_workers",
         3,
         ", FOREIGN KEY(tenant, job) REFERENCES pool_jobs ON DELETE CASCADE",
         {COLUMN(pool_worker, tenant, TEXT), COLUMN(pool_worker, job, TEXT),
          COLUMN(pool_worker, rank, U32), COLUMN(pool_worker, incarnation, U64),
          COLUMN(pool_worker, slot, U32), COLUMN(pool_worker, flags, U32)}},
};
/* clang-format on */

int schema_columns(const struct table_schema *table)
{
    int count = 0;
    while (count < COLUMNS_MAX && table->columns[count].name)
        count++;
    return count;
}

static const char *sql_type(enum column_type type)
{
    bool is_number = type == COLUMN_U32 || type == COLUMN_I32 || type == COLUMN_U64;
    return type == COLUMN_TEXT ? "TEXT" : is_number ? "INTEGER" : "BLOB";
}

void schema_create(const struct table_schema *table, char *sql)
{
    int count = schema_columns(table);
    sql[0] = 0;
    text_append(sql, SQL_BYTES, "CREATE TABLE IF NOT EXISTS %s(", table->name);
    for (int i = 0; i < count; i++)
        text_append(sql, SQL_BYTES, "\"%s\" %s NOT NULL, ", table->columns[i].name,
                    sql_type(table->columns[i].type));
    text_append(sql, SQL_BYTES, "PRIMARY KEY(");
    for (int i = 0; i < table->keys; i++)
        text_append(sql, SQL_BYTES, "%s\"%s\"", i ? "," : "", table->columns[i].name);
    text_append(sql, SQL_BYTES, ")%s) WITHOUT ROWID", table->constraint);
}

/* Writes an upsert statement. A REPLACE statement would first delete the row, and with the row all
 * rows that depend on it. */
void schema_put(const struct table_schema *table, char *sql)
{
    int count = schema_columns(table);
    sql[0] = 0;
    text_append(sql, SQL_BYTES, "INSERT INTO %s VALUES(", table->name);
    for (int i = 0; i < count; i++)
        text_append(sql, SQL_BYTES, "%s?%d", i ? "," : "", i + 1);
    text_append(sql, SQL_BYTES, ") ON CONFLICT DO UPDATE SET ");
    for (int i = table->keys; i < count; i++)
        text_append(sql, SQL_BYTES, "%s\"%s\"=?%d", i > table->keys ? "," : "",
                    table->columns[i].name, i + 1);
}

void schema_erase(const struct table_schema *table, char *sql)
{
    sql[0] = 0;
    text_append(sql, SQL_BYTES, "DELETE FROM %s WHERE ", table->name);
    for (int i = 0; i < table->keys; i++)
        text_append(sql, SQL_BYTES, "%s\"%s\"=?%d", i ? " AND " : "", table->columns[i].name,
                    i + 1);
}
