/* Batches of keys. Copying and sorting the keys does not need the job's lock. */
#include "client/lib/rows/internal.h"

#include "client/lib/job/row_call.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <inttypes.h>

int rows_check(const struct gp_table *t)
{
    if (t->job->failure.code)
        return client_error_from(&t->job->failure);
    return t->failure.code ? client_error_from(&t->failure) : 0;
}

static int batch_check_count(const struct gp_table *t, size_t count)
{
    uint32_t blocks = record_row_requests_open(t->job->workers);
    if (count <= (size_t)blocks * TABLE_KEYS_MAX)
        return 0;
    return client_error(-E2BIG,
                        "table '%s': a batch has %zu keys, but a lane of this job stores requests "
                        "for at most %u x %u keys of a rank; make several batches",
                        t->name, count, blocks, TABLE_KEYS_MAX);
}

static int batch_set_keys(struct gp_batch *b, const uint64_t *keys, size_t count)
{
    const struct gp_table *t = b->table;
    size_t wrong = 0;
    int error = table_batch_set(&b->keys, keys, count, t->terms->keys, t->route.salt, &wrong);
    if (error == -EINVAL)
        return client_error(error,
                            "table '%s': key %" PRIu64 " at position %zu is too large; "
                            "the table has keys below %" PRIu64,
                            t->name, keys[wrong], wrong, t->terms->keys);
    return error < 0
               ? client_error(
                     error,
                     "table '%s': this process has no memory for %zu keys; make smaller batches",
                     t->name, count)
               : 0;
}

int gp_batch_create(gp_table *table, const uint64_t *keys, size_t count, gp_batch **ret_batch)
{
    int error = job_table_check(table);
    if (error < 0)
        return error;
    if (!ret_batch || (count > 0 && !keys))
        return client_error(-EINVAL, "gp_batch_create: keys or ret_batch is NULL; pass both");
    struct gp_job *job = table->job;
    struct gp_batch *b = NULL;
    pthread_mutex_lock(&job->lock);
    error = rows_check(table) ?: batch_check_count(table, count);
    if (error == 0 && batch_create(table, &b) < 0)
        error = client_error(-ENOMEM,
                             "table '%s': this process has no memory for a batch; free some "
                             "batches, or raise its memory limit",
                             table->name);
    pthread_mutex_unlock(&job->lock);
    if (error == 0)
        error = batch_set_keys(b, keys, count);
    if (error == 0)
        *ret_batch = b;
    else
        gp_batch_free(b);
    return error;
}

void gp_batch_free(gp_batch *batch)
{
    if (!batch || generation_is_foreign(batch->table->job->client->generation))
        return;
    struct gp_job *job = batch->table->job;
    pthread_mutex_lock(&job->lock);
    batch_free(batch);
    pthread_mutex_unlock(&job->lock);
}
