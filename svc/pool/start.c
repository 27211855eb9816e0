/* Start of a rank: its variables, its log, its process. The number of the start is stored before
 * the process exists, so no two processes have the same cookie. */
#include "svc/base/system/process.h"
#include "svc/pool/internal.h"
#include "svc/pool/preload/preload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define VARIABLES 10
#define VARIABLE_BYTES 1024

struct start_variables {
    char texts[VARIABLES][VARIABLE_BYTES];
    char *list[VARIABLES + 1];
    int count;
};

static void variable_add(struct start_variables *v, const char *name, const char *value)
{
    snprintf(v->texts[v->count], VARIABLE_BYTES, "%s=%s", name, value);
    v->list[v->count] = v->texts[v->count];
    v->count++;
}

/* Returns whether each worker uses one thread, because the workers of a host share its cores. */
static bool needs_one_thread(const struct pool_options *o)
{
    return o->workers_max > 1 && !getenv("OMP_NUM_THREADS");
}

static void variable_add_number(struct start_variables *v, const char *name, uint32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    variable_add(v, name, text);
}

/* Sets the variables of a worker. A late worker has a rank beyond the size with which its job
 * began. torch.distributed refuses such a rank, so the late worker gets a larger WORLD_SIZE. */
static void set_variables(const struct worker_pool *pool, uint32_t rank, struct start_variables *v)
{
    const struct pool_options *o = pool->options;
    uint32_t founders = pool->ranks.founders;
    *v = (struct start_variables){.count = 0};
    variable_add(v, "GRADPOOL_ENDPOINT", o->endpoint);
    variable_add(v, "GRADPOOL_JOB", pool->folder->job);
    variable_add_number(v, "GRADPOOL_RANK", rank);
    variable_add_number(v, "GRADPOOL_SIZE", founders);
    variable_add_number(v, "GRADPOOL_WORKERS_MAX", pool->workers_max);
    variable_add_number(v, "RANK", rank);
    variable_add_number(v, "LOCAL_RANK", pool->engine->calls->is_spread ? 0 : rank);
    variable_add_number(v, "WORLD_SIZE", rank < founders ? founders : rank + 1);
    if (pool->site) {
        char text[24];
        snprintf(text, sizeof text, "%" PRIu64, pool->folder->incarnations[rank]);
        variable_add(v, "GRADPOOL_INCARNATION", text);
    }
    if (needs_one_thread(o))
        variable_add(v, "OMP_NUM_THREADS", "1");
}

void pool_begin_preload(struct worker_pool *pool)
{
    const struct pool_options *o = pool->options;
    struct start_variables variables = {.count = 0};
    if (needs_one_thread(o))
        variable_add(&variables, "OMP_NUM_THREADS", "1");
    if (o->preload)
        preload_begin(o->preload, o->program, variables.list, pool->folder);
}

void pool_store_rank(struct pool_folder *folder, uint32_t rank)
{
    struct err err;
    if (folder_store(folder, &err) < 0)
        pool_say("rank %u: its state was not stored: %s", rank, err.text);
}

/* Stores the process of a start. If a worker overwrites its environment, and so its cookie, the
 * next pool finds the worker by this process. */
static void store_process(struct pool_folder *folder, uint32_t rank, pid_t pid)
{
    folder->pids[rank] = pid;
    folder->identities[rank] = process_identity((uint32_t)pid);
    pool_store_rank(folder, rank);
}

static uint64_t next_incarnation(const struct worker_pool *pool, uint32_t rank)
{
    return pool->site ? pool->ranks.ranks[rank].ordered : pool->folder->incarnations[rank] + 1;
}

static int rank_start_process(struct worker_pool *pool, uint32_t rank, bool *ret_is_final,
                              struct err *err)
{
    struct start_variables variables;
    struct pool_folder *folder = pool->folder;
    struct cookie cookie;
    *ret_is_final = false;
    folder->incarnations[rank] = next_incarnation(pool, rank);
    folder->pids[rank] = 0;
    folder->identities[rank] = 0;
    folder->founders = pool->ranks.founders;
    int error = folder_store(folder, err);
    if (error < 0)
        return error;
    set_variables(pool, rank, &variables);
    const struct engine_start start = {.program = pool->options->program,
                                       .variables = variables.list,
                                       .rank = rank,
                                       .incarnation = folder->incarnations[rank]};
    int runs = pool->engine->calls->start(pool->engine, &start, ret_is_final, err);
    if (runs > 0 && pool->engine->calls->find(pool->engine, rank, &cookie))
        store_process(folder, rank, cookie.pid);
    return runs;
}

/* Reports a failed start. The text contains only the error, because program and path stay on this
 * host (PL1). */
static void report_failed(struct worker_pool *pool, uint32_t rank, const struct err *err)
{
    struct site_report report = {.event = SITE_FAILED};
    snprintf(report.text, sizeof report.text, "%s", err_text(err->code));
    pool_report(pool, rank, report);
}

/* Handles a program that cannot be executed: another try would fail as well. The exit codes are
 * those of a shell. */
static void refuse_rank(struct worker_pool *pool, uint32_t rank, const struct err *err,
                        uint64_t now_ns)
{
    enum rank_verdict verdict =
        ranks_refused(&pool->ranks, rank, err->code == -ENOENT ? 127 : 126, now_ns);
    pool_say("rank %u: %s (%s)", rank, err->text,
             verdict == VERDICT_ALL ? "no worker runs" : "the others train on");
    report_failed(pool, rank, err);
}

void pool_start_rank(struct worker_pool *pool, uint32_t rank, uint64_t now_ns)
{
    struct err err;
    bool is_final;
    uint32_t pause_s = 0;
    int runs = rank_start_process(pool, rank, &is_final, &err);
    if (runs < 0 && is_final)
        return refuse_rank(pool, rank, &err, now_ns);
    ranks_started(&pool->ranks, rank, pool->folder->incarnations[rank], false, now_ns);
    if (runs > 0)
        return pool_report(pool, rank, (struct site_report){.event = SITE_STARTED});
    if (runs == 0)
        return;
    enum rank_verdict verdict = ranks_ended(&pool->ranks, rank, END_EXIT, 1, now_ns, &pause_s);
    pool_tell_verdict(pool, rank, err.text, verdict, pause_s);
    report_failed(pool, rank, &err);
}
