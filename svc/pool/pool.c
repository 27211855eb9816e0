/* The loop of a pool: waits for events of the engine, for signals, for looks at the job or orders
 * of its site, and for times that are due. Owns struct worker_pool. Decisions: ranks.c. */
#include "svc/pool/pool.h"

#include "svc/base/clock.h"
#include "svc/base/system/process.h"
#include "svc/base/system/signals.h"
#include "svc/pool/internal.h"
#include "svc/pool/preload/preload.h"
#include "svc/pool/slurm/slurm.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FAILED 1
#define SETTLE_NS (10 * NS_PER_S) /* longest wait for the delivery of the last reports */

/* --- ends of processes --- */

static void describe_end(enum rank_end end, int number, char *text, size_t text_bytes)
{
    if (end == END_SIGNAL)
        snprintf(text, text_bytes, "the worker was ended by signal %d (%s)", number,
                 strsignal(number));
    else if (end == END_EXIT)
        snprintf(text, text_bytes, "the worker ended with exit code %d", number);
    else
        snprintf(text, text_bytes, "the worker, of an earlier gradpool run, has ended");
}

void pool_report(struct worker_pool *pool, uint32_t rank, struct site_report report)
{
    const struct pool_folder *folder = pool->folder;
    if (!pool->site)
        return;
    report.rank = rank;
    report.incarnation = folder->incarnations[rank];
    report.pid = folder->pids[rank];
    report.identity = folder->identities[rank];
    site_report(pool->site, &report);
}

void pool_rank_ended(struct worker_pool *pool, uint32_t rank, enum rank_end end, int number)
{
    char how[128];
    uint32_t pause_s = 0;
    pool_report(pool, rank,
                (struct site_report){.event = SITE_ENDED, .end = end, .number = number});
    enum rank_verdict verdict =
        ranks_ended(&pool->ranks, rank, end, number, clock_now_ns(), &pause_s);
    describe_end(end, number, how, sizeof how);
    pool_tell_verdict(pool, rank, how, verdict, pause_s);
    if (pool->watch)
        watch_hurry(pool->watch);
}

/* --- events of the engine --- */

/* Stores why the rank does not run yet. A study reads this reason from the folder. */
static void pool_store_wait(struct worker_pool *pool, uint32_t rank, const char *text)
{
    char **waits = &pool->folder->waits[rank];
    if (!*waits && !text)
        return;
    free(*waits);
    *waits = text ? strdup(text) : NULL;
    pool_store_rank(pool->folder, rank);
}

/* Reports why the rank does not run yet. A text with a path is not sent, because paths stay on this
 * host (PL1). */
static void pool_report_wait(struct worker_pool *pool, uint32_t rank, const char *text)
{
    struct site_report report = {.event = SITE_WITHHELD};
    snprintf(report.text, sizeof report.text, "rank %u: %.*s", rank, SITE_TEXT_BYTES - 32,
             strchr(text, '/') ? "see the messages of the pool" : text);
    pool_store_wait(pool, rank, text);
    pool_report(pool, rank, report);
}

static void pool_worker_runs(struct worker_pool *pool, uint32_t rank)
{
    ranks_runs(&pool->ranks, rank, true, clock_now_ns());
    pool_store_wait(pool, rank, NULL);
    pool_report(pool, rank, (struct site_report){.event = SITE_STARTED});
}

static void pool_worker_waits(struct worker_pool *pool, const struct engine_event *event)
{
    ranks_runs(&pool->ranks, event->rank, false, clock_now_ns());
    pool_say("rank %u does not run yet: %s", event->rank, event->text);
    pool_report_wait(pool, event->rank, event->text);
}

static void pool_worker_refused(struct worker_pool *pool, const struct engine_event *event)
{
    uint32_t pause_s = ranks_put_off(&pool->ranks, event->rank, clock_now_ns());
    if (pause_s == 0)
        return pool_rank_ended(pool, event->rank, END_SIGNAL, SIGTERM);
    pool_say("rank %u was not started: %s; the next try is in %u s", event->rank, event->text,
             pause_s);
    pool_report_wait(pool, event->rank, event->text);
}

static void pool_worker_ended(struct worker_pool *pool, const struct engine_event *event)
{
    if (event->left > 0)
        pool_say("rank %u: %u of its processes have not ended after SIGKILL; look at them with ps",
                 event->rank, event->left);
    pool_store_wait(pool, event->rank, NULL);
    pool_rank_ended(pool, event->rank, event->end, event->number);
}

static void pool_take_events(struct worker_pool *pool)
{
    struct engine_event event;
    while (pool->engine->calls->next(pool->engine, &event)) {
        switch (event.kind) {
        case ENGINE_RUNS: pool_worker_runs(pool, event.rank); break;
        case ENGINE_WAITS: pool_worker_waits(pool, &event); break;
        case ENGINE_REFUSED: pool_worker_refused(pool, &event); break;
        case ENGINE_ENDED: pool_worker_ended(pool, &event); break;
        case ENGINE_NOTHING: break;
        case ENGINE_SAYS: pool_say("job %s: %s", pool->folder->job, event.text); break;
        }
    }
}

/* --- looks --- */

static void judge_rank(struct worker_pool *pool, uint32_t rank, const struct pool_look *look)
{
    char how[128];
    uint32_t pause_s = 0;
    enum rank_verdict verdict = ranks_judge(&pool->ranks, rank, look, clock_now_ns(), &pause_s);
    describe_end(END_UNKNOWN, 0, how, sizeof how);
    pool_tell_verdict(pool, rank, how, verdict, pause_s);
}

static void judge_gone(struct worker_pool *pool, const struct pool_look *look)
{
    for (uint32_t rank = 0; rank < pool->ranks.most; rank++) {
        const struct pool_rank *r = &pool->ranks.ranks[rank];
        if (r->state == RANK_GONE && look->asked_ns >= r->ended_ns)
            judge_rank(pool, rank, look);
    }
}

static void tell_fixed(struct worker_pool *pool, const struct pool_look *look)
{
    if (pool->is_fixed_told || !look->has_job || look->is_elastic || pool->options->workers_max < 2)
        return;
    pool->is_fixed_told = true;
    pool_say("job %s trains with a fixed number of workers, because the program joins without "
             "workers_max; use gradpool.elastic.Run, or join with GRADPOOL_WORKERS_MAX",
             pool->folder->job);
}

static void tell_too_large(struct worker_pool *pool, const struct pool_look *look)
{
    uint32_t most = pool->options->workers_max;
    bool is_too_large = look->has_job && look->wanted > most;
    if (is_too_large && !pool->is_too_large)
        pool_say("job %s: %u workers are wanted, but --workers-max is %u, so no more are started; "
                 "resize the job, or start workers by hand",
                 pool->folder->job, look->wanted, most);
    pool->is_too_large = is_too_large;
}

/* Ends the workers of this pool if another pool already watches the job. Returns whether there is
 * such a pool. */
static bool pool_is_second(struct worker_pool *pool, int error, const struct err *err)
{
    if (error != -EEXIST || pool->has_joined)
        return false;
    if (!pool->ranks.is_over)
        pool_say("%s", err->text);
    ranks_order_over(&pool->ranks, error);
    return true;
}

static void tell_unseen(struct worker_pool *pool, int error, const struct err *err)
{
    bool is_unseen = error < 0;
    pool->has_joined = pool->has_joined || error == 0;
    if (is_unseen == pool->is_unseen)
        return;
    pool->is_unseen = is_unseen;
    if (is_unseen)
        pool_say("job %s: its size is unknown: %s; workers that run train on", pool->folder->job,
                 err->text);
    else
        pool_say("job %s: its size is known again", pool->folder->job);
}

/* Returns whether the session of the rank belongs to a process of another pool on this host, which
 * trains the same job in another folder. The process is recognized by its cookie, and after its end
 * by its stored number. */
static bool session_is_foreign(struct worker_pool *pool, uint32_t rank, uint32_t pid)
{
    if (pid == 0)
        return false;
    if (pid == pool->foreign[rank])
        return true;
    uint64_t owner = pool->engine->calls->pool_of(pool->engine, pid);
    if (owner == 0 || owner == pool->folder->pool)
        return false;
    pool->foreign[rank] = pid;
    pool_say("job %s: rank %u is process %u of another pool on this host; give this job another "
             "name with --job, or end that pool",
             pool->folder->job, rank, pid);
    return true;
}

/* Removes sessions of other pools from the look, because they do not describe workers of this
 * pool. */
static void leave_out_foreign(struct worker_pool *pool, struct pool_look *look)
{
    for (uint32_t rank = 0; rank < pool->ranks.most; rank++)
        if (look->sessions[rank] != SEEN_NOT && session_is_foreign(pool, rank, look->pids[rank]))
            look->sessions[rank] = SEEN_NOT;
}

static void take_look(struct worker_pool *pool)
{
    struct pool_look look;
    struct err err;
    int error = watch_take(pool->watch, &look, &err);
    uint32_t wanted = pool->ranks.wanted;
    uint64_t now_ns = clock_now_ns();
    if (pool_is_second(pool, error, &err))
        return;
    tell_unseen(pool, error, &err);
    if (error < 0)
        return;
    leave_out_foreign(pool, &look);
    tell_fixed(pool, &look);
    tell_too_large(pool, &look);
    if (ranks_looked(&pool->ranks, &look, now_ns) && !pool->awaits_look)
        pool_say("job %s: %u workers, from %u", pool->folder->job, look.wanted, wanted);
    if (pool->awaits_look && look.has_job) {
        pool->awaits_look = false;
        ranks_adopted(&pool->ranks, &look, now_ns);
    }
    judge_gone(pool, &look);
}

/* --- signals --- */

/* Informs the coordinator that this pool ends the job. The coordinator then starts no other
 * worker. */
static void pool_withdraw(struct worker_pool *pool)
{
    if (pool->site && pool->ranks.is_ending && !pool->ranks.is_over)
        site_withdraw(pool->site);
}

static void pool_stop(struct worker_pool *pool, int number)
{
    bool is_first = !pool->forwarded;
    if (is_first)
        pool->forwarded = number;
    ranks_stop(&pool->ranks, 128 + number, clock_now_ns());
    if (is_first)
        pool_say("%s: all workers get this signal, and have 10 s to end; another signal makes "
                 "this time shorter",
                 strsignal(number));
}

/* Returns whether the user wants the job to rest: the folder has a file `rest`. */
static bool pool_wants_rest(const struct worker_pool *pool)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/rest", pool->folder->path);
    return access(path, F_OK) == 0;
}

static void pool_read_rest(struct worker_pool *pool)
{
    if (pool->site)
        site_rest(pool->site, pool_wants_rest(pool));
    else
        pool_say("job %s cannot rest: its service has no slots; start the pool with --site",
                 pool->folder->job);
}

/* Sends the standing of the job's trial. The study has written the standing to the folder: "RUNG
 * VALUE". */
static void pool_read_standing(struct worker_pool *pool)
{
    char path[PATH_MAX + 12];
    struct site_standing standing = {0};
    snprintf(path, sizeof path, "%s/standing", pool->folder->path);
    FILE *file = pool->site ? fopen(path, "re") : NULL;
    bool is_read = file && fscanf(file, "%u %lf", &standing.rung, &standing.value) == 2;
    if (file)
        fclose(file);
    if (is_read)
        site_stand(pool->site, &standing);
}

static void pool_take_signals(struct worker_pool *pool)
{
    struct signalfd_siginfo info;
    while (read(pool->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGUSR1)
            pool_read_rest(pool);
        else if (info.ssi_signo == SIGUSR2)
            pool_read_standing(pool);
        else
            pool_stop(pool, (int)info.ssi_signo);
}

/* Waits until the coordinator has ended the job, so that the slots become free at once. The wait
 * also ends after a further signal or a lost connection. */
static void pool_settle(struct worker_pool *pool)
{
    uint64_t deadline_ns = clock_now_ns() + SETTLE_NS;
    if (!pool->site)
        return;
    struct pollfd fds[] = {{.fd = pool->signal_fd, .events = POLLIN},
                           {.fd = site_fd(pool->site), .events = POLLIN}};
    pool_withdraw(pool);
    while (pool_take_orders(pool) == 0 && !(pool->ranks.is_over && site_is_settled(pool->site)) &&
           clock_now_ns() < deadline_ns && signals_take_end(pool->signal_fd) == 0)
        (void)poll(fds, 2, clock_poll_ms(deadline_ns, clock_now_ns()));
}

/* --- loop --- */

/* Carries out all actions that are due. Returns the time of the next action. */
static uint64_t pool_act(struct worker_pool *pool)
{
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        struct pool_action action = ranks_next(&pool->ranks, pool->forwarded, now_ns);
        if (action.is_late)
            pool_say("rank %u was removed, but stays after %llu s, so its process is ended; raise "
                     "--leave-timeout to wait longer",
                     action.rank, (unsigned long long)(pool->options->leave_ns / NS_PER_S));
        if (action.verb == POOL_START && preload_is_importing())
            return preload_due();
        switch (action.verb) {
        case POOL_START: pool_start_rank(pool, action.rank, now_ns); break;
        case POOL_SIGNAL:
            pool->engine->calls->signal(pool->engine, action.rank, action.signal);
            break;
        case POOL_JUDGE: judge_rank(pool, action.rank, NULL); break;
        case POOL_NOTHING: return action.at_ns;
        }
    }
}

static void pool_turn(struct worker_pool *pool, uint64_t next_ns)
{
    int news_fd = pool->site ? site_fd(pool->site) : watch_fd(pool->watch);
    struct pollfd fds[] = {{.fd = pool->signal_fd, .events = POLLIN},
                           {.fd = news_fd, .events = POLLIN},
                           {.fd = pool->engine->calls->fd(pool->engine), .events = POLLIN},
                           {.fd = preload_fd(), .events = POLLIN}};
    int ready = poll(fds, 4, clock_poll_ms(next_ns, clock_now_ns()));
    preload_turn(); /* before pool_take_events() handles the end of the preload process */
    if (ready <= 0)
        return;
    if (fds[2].revents)
        pool_take_events(pool);
    if (fds[1].revents && pool->site)
        (void)pool_take_orders(pool);
    else if (fds[1].revents)
        take_look(pool);
    if (fds[0].revents)
        pool_take_signals(pool);
}

/* --- start and end --- */

static void pool_name_job(struct worker_pool *pool, int adopted)
{
    const struct pool_options *o = pool->options;
    struct pool_folder *folder = pool->folder;
    if (adopted > 0) {
        pool_say("job %s: adopted %d workers of an earlier gradpool run; logs: %s/rank-N.log",
                 folder->job, adopted, folder->path);
        return;
    }
    snprintf(folder->job, sizeof folder->job, "%s", o->job ? o->job : o->new_job);
    folder->program = pool_program_hash(o->program);
    pool_say("job %s: %u workers, up to %u; logs: %s/rank-N.log", folder->job, o->workers,
             o->workers_max, folder->path);
}

/* Chooses the site of the job. Adopted workers keep the site of the earlier pool, so another --site
 * is refused. */
static int pool_choose_site(struct worker_pool *pool, int adopted, struct err *err)
{
    const struct pool_options *o = pool->options;
    struct pool_folder *folder = pool->folder;
    const char *site = o->site ? o->site : o->host_site ? o->host_site : "";
    if (adopted == 0) {
        snprintf(folder->site, sizeof folder->site, "%s", site);
        return 0;
    }
    if (!o->site || strcmp(o->site, folder->site) == 0)
        return 0;
    return err_set(err, -EEXIST,
                   "folder %s: its workers belong to site '%s', not to site '%s'; give another "
                   "--folder, or the same --site",
                   folder->path, folder->site, o->site);
}

static void report_adopted(struct worker_pool *pool)
{
    for (uint32_t rank = 0; rank < pool->ranks.most; rank++) {
        struct cookie cookie;
        pool->ranks.ranks[rank].incarnation = pool->folder->incarnations[rank];
        if (!pool->engine->calls->find(pool->engine, rank, &cookie))
            continue;
        pool->folder->incarnations[rank] = cookie.incarnation;
        pool->folder->pids[rank] = cookie.pid;
        pool->folder->identities[rank] =
            cookie.pid > 0 ? process_identity((uint32_t)cookie.pid) : 0;
        pool->ranks.ranks[rank].incarnation = cookie.incarnation;
        pool->ranks.ranks[rank].ordered = cookie.incarnation;
        pool_report(pool, rank, (struct site_report){.event = SITE_STARTED});
    }
}

static int pool_begin_site(struct worker_pool *pool, int adopted, struct err *err)
{
    const struct pool_options *o = pool->options;
    const struct site_terms terms = {.site = pool->folder->site,
                                     .job = pool->folder->job,
                                     .study = o->study ? o->study : "",
                                     .pool = pool->folder->pool,
                                     .workers = o->workers,
                                     .workers_max = o->workers_max,
                                     .followers = o->followers,
                                     .may_rest = o->may_rest,
                                     .is_new = adopted == 0};
    pool->ranks.is_ordered = true;
    pool_say("job %s: the service at %s is asked for slots of site %s", pool->folder->job,
             o->endpoint, pool->folder->site);
    /* The number of the folder is stored first, so that the next pool of the folder has the same
     * number and can end this pool's waiting job. */
    int error = folder_store(pool->folder, err);
    if (error == 0)
        error = site_create(o->calls, o->calls_context, &terms, &pool->site, err);
    if (error == 0 && adopted > 0)
        report_adopted(pool);
    if (error == 0 && (adopted > 0 || pool_wants_rest(pool)))
        site_rest(pool->site, pool_wants_rest(pool));
    if (error == 0)
        pool_read_standing(pool);
    return error < 0 ? error : site_begin(pool->site, err);
}

static int pool_look_once(void *context, struct pool_look *ret_look, struct err *err)
{
    const struct worker_pool *pool = context;
    return pool->options->look(pool->options->context, pool->folder->job, pool->folder->pool,
                               ret_look, err);
}

/* Requests the state of the job before the first start. Fails if another pool has the job. After
 * any other error the workers start, because they wait for the service themselves. */
static int pool_watch_job(struct worker_pool *pool, struct err *err)
{
    struct pool_look look = {0};
    struct err none;
    int error = pool->options->is_unanswered ? -EAGAIN : pool_look_once(pool, &look, &none);
    pool->has_joined = error == 0;
    if (error == -EEXIST)
        *err = none;
    return error == -EEXIST ? error : 0;
}

static int pool_begin_watch(struct worker_pool *pool, int adopted, struct err *err)
{
    int error = pool_watch_job(pool, err);
    if (error < 0)
        return error;
    pool->awaits_look = adopted > 0;
    if (adopted == 0)
        ranks_begin(&pool->ranks, clock_now_ns());
    return watch_create(pool_look_once, pool, &pool->watch, err);
}

/* Adopts the workers of an earlier pool. Without such workers, begins the job with new workers. */
static int pool_begin_workers(struct worker_pool *pool, struct err *err)
{
    int adopted = pool_adopt(pool, clock_now_ns(), err);
    if (adopted < 0)
        return adopted;
    int error = pool_choose_site(pool, adopted, err);
    if (error < 0)
        return error;
    pool_name_job(pool, adopted);
    return *pool->folder->site ? pool_begin_site(pool, adopted, err)
                               : pool_begin_watch(pool, adopted, err);
}

/* Refuses to change the engine of the folder's workers. With another engine, the pool could not
 * find these workers, and would start their ranks a second time. */
static int pool_check_engine(struct worker_pool *pool, const char *name, struct err *err)
{
    struct pool_folder *folder = pool->folder;
    const char *former = *folder->engine ? folder->engine : "local";
    if (*folder->job && !folder->was_over && strcmp(former, name) != 0)
        return err_set(err, -EEXIST,
                       "folder %s: its workers were started with --engine %s; give the same "
                       "--engine, or another --folder",
                       folder->path, former);
    snprintf(folder->engine, sizeof folder->engine, "%s", strcmp(name, "local") == 0 ? "" : name);
    return 0;
}

static int pool_begin_engine(struct worker_pool *pool, struct err *err)
{
    const struct pool_options *o = pool->options;
    const char *name = o->engine ? o->engine : "local";
    static struct slurm_setup slurm; /* outlives the engine */
    slurm = (struct slurm_setup){.folder = pool->folder,
                                 .options = o->slurm,
                                 .signal_fd = pool->signal_fd,
                                 .ret_signal = &pool->forwarded,
                                 .say = pool_say};
    int error = pool_check_engine(pool, name, err);
    if (error < 0)
        return error;
    return strcmp(name, "slurm") == 0 ? engine_slurm_create(&slurm, &pool->engine, err)
                                      : engine_local_create(pool->folder, &pool->engine, err);
}

static int pool_begin(struct worker_pool *pool, struct err *err)
{
    const struct pool_options *o = pool->options;
    sigset_t watched = signals_that_end(), children;
    ranks_init(&pool->ranks, o->workers, o->workers_max, o->leave_ns);
    pool->workers_max = o->workers_max;
    int error = folder_open(o->folder, pool->folder, err);
    if (error < 0)
        return error;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigaddset(&watched, SIGUSR1);
    sigaddset(&watched, SIGUSR2);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    sigprocmask(SIG_BLOCK, &children, NULL);
    pool->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (pool->signal_fd < 0)
        return err_set(err, -errno, "no descriptor for a pool: %s", strerror(errno));
    error = pool_begin_engine(pool, err);
    if (error == 0)
        error = pool_begin_workers(pool, err);
    if (error == 0)
        pool_begin_preload(pool);
    return error;
}

/* Stores the exit code in the folder, where a restarted study reads it. */
static void pool_store_result(struct worker_pool *pool, int code)
{
    struct err err;
    pool->folder->has_result = true;
    pool->folder->result = code;
    if (folder_store(pool->folder, &err) < 0)
        pool_say("job %s: the exit code was not stored: %s", pool->folder->job, err.text);
}

int pool_run(const struct pool_options *options)
{
    static struct pool_folder folder;
    static struct worker_pool pool; /* the thread of watch.c uses both until the process ends */
    struct err err = {0};
    pool.options = options;
    pool.folder = &folder;
    if (pool_begin(&pool, &err) < 0) {
        pool_say("%s", err.text);
        return pool.forwarded ? 128 + pool.forwarded : FAILED;
    }
    uint64_t next_ns;
    while (next_ns = pool_act(&pool), !ranks_are_over(&pool.ranks)) {
        pool_withdraw(&pool);
        pool_turn(&pool, next_ns);
    }
    preload_end();
    pool_settle(&pool);
    pool.engine->calls->end(pool.engine);
    int code = pool.ranks.code ? pool.ranks.code : pool.ranks.has_trained ? 0 : FAILED;
    pool_store_result(&pool, code);
    folder_close(pool.folder);
    return code;
}
