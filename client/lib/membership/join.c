/* A worker joins a job: checks the spec, creates the engine and the control connection. */
#include "client/lib/link/link.h"
#include "client/lib/membership/internal.h"
#include "client/lib/report/timeline.h"
#include "client/lib/round/settle.h"
#include "client/lib/session/process.h"
#include "client/lib/sets/sets.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/system/process.h"
#include "svc/base/system/shortage.h"
#include "svc/base/text.h"
#include "svc/wire/backup_terms.h"
#include "svc/wire/durability.h"
#include "svc/wire/limit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)GP_BACKUP_ADASYNC == BACKUP_TERMS_ADASYNC &&
                   (int)GP_RATE_PROPORTIONAL == BACKUP_TERMS_PROPORTIONAL,
               "the values of gradpool.h are those of the wire");

static struct backup_terms backup_terms_of(const gp_backup_spec *spec)
{
    return (struct backup_terms){.rule = (uint32_t)spec->rule,
                                 .k = spec->k,
                                 .least = spec->least,
                                 .absence = spec->absence,
                                 .lag = spec->lag,
                                 .gradients = spec->gradients,
                                 .rate = (uint32_t)spec->rate,
                                 .sets = sets_flags(spec)};
}

static int check_backup(const gp_job_spec *spec)
{
    struct err err;
    struct backup_terms terms = backup_terms_of(&spec->backup);
    int error = backup_terms_check(&terms, spec->workers, spec->name, &err);
    return error < 0 ? client_error(error, "%s", err.text) : 0;
}

static int check_spec(const gp_job_spec *spec)
{
    if (!spec || !spec->name || !*spec->name)
        return client_error(-EINVAL, "the job has no name; set gp_job_spec.name or GRADPOOL_JOB");
    if (strlen(spec->name) > JOB_NAME_BYTES_MAX)
        return client_error(-EINVAL, "the job's name has %zu bytes, expected at most %d",
                            strlen(spec->name), JOB_NAME_BYTES_MAX);
    if (!text_is_utf8(spec->name))
        return client_error(-EINVAL, "the job's name is not UTF-8; encode the name as UTF-8");
    if (spec->workers < 1 || spec->workers > CLIENT_WORKERS_MAX)
        return client_error(-EINVAL, "job '%s' with %u workers, expected 1 to %d", spec->name,
                            spec->workers, CLIENT_WORKERS_MAX);
    if (spec->workers_max > CLIENT_WORKERS_MAX ||
        (spec->workers_max && spec->workers_max < spec->workers))
        return client_error(-EINVAL, "job '%s': workers_max %u, expected %u to %d", spec->name,
                            spec->workers_max, spec->workers, CLIENT_WORKERS_MAX);
    /* the coordinator decides which ranks may join now (K45 of svc/coordinator) */
    uint32_t most = spec->workers_max ? spec->workers_max : spec->workers;
    if (spec->rank >= most)
        return client_error(-EINVAL, "job '%s': rank %u of %s%u workers; the first rank is 0",
                            spec->name, spec->rank, spec->workers_max ? "at most " : "", most);
    if (spec->on_worker_loss != GP_FAIL && spec->on_worker_loss != GP_CONTINUE)
        return client_error(
            -EINVAL, "job '%s': on_worker_loss is %d, expected a value of enum gp_worker_loss",
            spec->name, (int)spec->on_worker_loss);
    if ((unsigned)spec->durability > DURABILITY_MOST)
        return client_error(
            -EINVAL, "job '%s': durability is %d, expected 0 or a value of enum gp_durability",
            spec->name, spec->durability);
    if (spec->loss_limit_ppm > LOSS_LIMIT_PPM_MAX)
        return client_error(-EINVAL, "job '%s': a loss limit of %u ppm, expected at most %u",
                            spec->name, spec->loss_limit_ppm, LOSS_LIMIT_PPM_MAX);
    return check_backup(spec);
}

static struct gp_job *job_create(gp_client *client, const gp_job_spec *spec)
{
    struct gp_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->client = client;
    job->rank = spec->rank;
    job->workers = spec->workers_max ? spec->workers_max : spec->workers;
    job->is_elastic = spec->on_worker_loss == GP_CONTINUE || job->workers > spec->workers;
    membership_init(job, spec->workers);
    job->free_slot = UINT32_MAX;
    job->loss = NAN;
    job->read_fd = -1;
    job->progress.told.at_ns = clock_now_ns();
    snprintf(job->name, sizeof job->name, "%s", spec->name);
    gethostname(job->host, sizeof job->host - 1);
    pthread_mutex_init(&job->lock, NULL);
    pthread_mutex_init(&job->declaring, NULL);
    struct list *lists[] = {&job->node,    &job->fork_node, &job->links,
                            &job->tensors, &job->requests,  &job->pool};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    return job;
}

/* Returns the minimum number of ranks with which a round closes. If a rank may have several
 * gradients in a round, only the rule decides (A125). */
static uint32_t fewest_of_backup(const gp_backup_spec *spec, uint32_t workers)
{
    struct backup_terms terms = backup_terms_of(spec);
    if (spec->gradients > 1)
        return 1;
    if (spec->rule == GP_BACKUP_STATIC)
        return spec->k > spec->least ? spec->k : spec->least;
    return backup_terms_filled(terms, workers).least;
}

/* Logs a warning if the job has too few workers for its rule: a rule needs three or more. */
static void warn_of_few(const gp_job_spec *spec)
{
    bool is_chosen = spec->backup.rule != GP_BACKUP_ALL && spec->backup.rule != GP_BACKUP_STATIC;
    if (is_chosen && spec->workers < 3 && spec->rank == 0)
        log_warn("job '%s': backup rule '%s' drops no gradient of %u workers, so each round waits "
                 "for all ranks; start 3 workers or more",
                 spec->name, backup_terms_rule_name(spec->backup.rule), spec->workers);
}

/* Fills the BackupSpec of the join. A job without backup workers sends none. */
static void describe_backup(struct gp_job *job, const gp_backup_spec *spec, uint32_t workers)
{
    if (spec->rule == GP_BACKUP_ALL)
        return;
    job->join_backup = MESSAGE_PART(BackupSpec, backup_spec, .rule = (uint32_t)spec->rule,
                                    .k = spec->k, .least = spec->least, .absence = spec->absence,
                                    .lag = spec->lag, .gradients = spec->gradients,
                                    .rate = (uint32_t)spec->rate, .sets = sets_flags(spec));
    job->join.backup = &job->join_backup;
    job->backup.count = fewest_of_backup(spec, workers);
}

/* Reads the number of this start of the rank, which a pool sets. 0: no pool has started this
 * process. */
static int read_incarnation(uint64_t *ret_incarnation, struct err *err)
{
    const char *text = getenv("GRADPOOL_INCARNATION");
    *ret_incarnation = 0;
    if (!text || text_parse_u64(text, 1, UINT64_MAX, ret_incarnation) == 0)
        return 0;
    return err_set(err, -EINVAL,
                   "GRADPOOL_INCARNATION is '%.40s', expected a number; only a pool sets this "
                   "variable, so unset it",
                   text);
}

static int create_control(struct gp_job *job, const gp_job_spec *spec, struct err *err)
{
    gp_client *client = job->client;
    uint32_t pid = (uint32_t)getpid();
    uint64_t incarnation;
    int error = read_incarnation(&incarnation, err);
    if (error < 0)
        return error;
    job->join = MESSAGE_PART(
        JoinRequest, join_request, .job = job->name, .rank = job->rank, .workers = spec->workers,
        .workers_max = spec->workers_max, .continues = spec->on_worker_loss == GP_CONTINUE,
        .node = job->host, .loss_limit_ppm = spec->loss_limit_ppm, .durability = spec->durability,
        .pid = pid, .pid_namespace = process_namespace(), .identity = process_identity(pid),
        .lane_wait_ms = (uint32_t)(client->connect_timeout_ns / NS_PER_MS),
        .answer_ms = (uint32_t)(client->timeout_ns / NS_PER_MS), .asks_entry = true,
        .incarnation = incarnation);
    describe_backup(job, &spec->backup, spec->workers);
    warn_of_few(spec);
    struct control_options options = {.endpoint = &client->endpoint,
                                      .addresses = &client->addresses,
                                      .key = client->has_key ? &client->key : NULL,
                                      .endpoint_text = client->endpoint_text,
                                      .program = CLIENT_PROGRAM,
                                      .join = &job->join,
                                      .join_is_late = &job->join_is_late,
                                      .unasked = unasked_handle,
                                      .tick_ns =
                                          log_is_written(LOG_LEVEL_INFO) ? client->progress_ns : 0,
                                      .tick = progress_tell,
                                      .context = job};
    return control_create(&options, &job->control, err);
}

static bool needs_progress(void *context)
{
    const struct gp_job *job = context;
    return job->engine.ofi_conns > 0 || job->queued || job->unsent || job->connecting ||
           backup_is_watched(&job->backup);
}

/* Starts the engine. The job is in the list for forks before its first socket exists (L8). */
static int start(struct gp_job *job, const gp_job_spec *spec, struct err *err)
{
    char lack[SHORTAGE_BYTES];
    int error = engine_init(&job->engine, &job->lock, settle_event, needs_progress, job);
    if (error < 0)
        return err_set(err, error, "job '%s': no thread or descriptors: %s", job->name,
                       shortage_text(error, SHORTAGE_THREADS, lack, sizeof lack));
    struct backup_terms terms = backup_terms_of(&spec->backup);
    error = sets_open(job, &spec->backup, &terms, spec->workers, err);
    if (error == 0)
        error = create_control(job, spec, err);
    if (error == 0 && (error = fork_watch(job)) < 0)
        err_set(err, error, "job '%s': %s", job->name, err_text(error));
    if (error == 0) {
        uint64_t deadline_ns = clock_now_ns() + job->client->connect_timeout_ns;
        error = control_connect(job->control, deadline_ns, err);
    }
    if (error < 0) {
        leave_close(job);
        engine_fini(&job->engine);
    }
    return error;
}

int gp_job_join(gp_client *client, const gp_job_spec *spec, gp_job **ret_job)
{
    struct err err = {0};
    if (!client || !ret_job)
        return client_error(-EINVAL, "gp_job_join: client or ret_job is NULL; pass both");
    if (generation_is_foreign(client->generation))
        return client_error(-ECHILD, "gp_job_join: the client belongs to the parent process; call "
                                     "gp_connect() in this process");
    int error = check_spec(spec);
    if (error < 0)
        return error;
    struct gp_job *job = job_create(client, spec);
    if (!job)
        return client_error(
            -ENOMEM, "gp_job_join: this process has no memory for the job; raise its memory limit");
    error = start(job, spec, &err);
    if (error < 0) {
        leave_free(job);
        return client_error(error, "%s", err.text[0] ? err.text : err_text(error));
    }
    job->id = job->join.job_id;
    job->keeps_copies = job->join.durability == DURABILITY_WORKER;
    job->has_copies = job->keeps_copies || job->join.durability == DURABILITY_REPLICA;
    pthread_mutex_lock(&client->lock);
    list_append(&client->jobs, &job->node);
    pthread_mutex_unlock(&client->lock);
    job_timeline_from_environment(job);
    if (job->join_is_late)
        link_prepare(job);
    *ret_job = job;
    return 0;
}
