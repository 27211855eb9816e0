/* Creation and destruction of the coordinator. Turns the options into a running service with the
 * restored state. Owns struct service, and the order in which rooms (folders of coordinator/) are
 * created and destroyed. */
#include "svc/coordinator/coordinator.h"

#include "packer/packer.h"
#include "svc/base/log.h"
#include "svc/base/system/descriptors.h"
#include "svc/base/system/signals.h"
#include "svc/base/text.h"
#include "svc/coordinator/aggregator/ping.h"
#include "svc/coordinator/copies/copies.h"
#include "svc/coordinator/filing/filing.h"
#include "svc/coordinator/growth/scaling_moves.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/order/order.h"
#include "svc/coordinator/order/outliving.h"
#include "svc/coordinator/order/tenant_request.h"
#include "svc/coordinator/peer/advertise.h"
#include "svc/coordinator/peer/door.h"
#include "svc/coordinator/placement/ask_packer.h"
#include "svc/coordinator/placement/history.h"
#include "svc/coordinator/recovery/recovery.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/goodbye.h"
#include "svc/coordinator/session/host_silence.h"
#include "svc/coordinator/session/session.h"
#include "svc/coordinator/slots/slots.h"
#include "svc/coordinator/snapshot/snapshot.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/coordinator/stopping.h"
#include "svc/coordinator/store/numbers.h"
#include "svc/coordinator/store/state_dir.h"
#include "svc/coordinator/table/place.h"
#include "svc/coordinator/timeline/timeline.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/un.h>

/* Number of file descriptors for the coordinator itself, one aggregator and some workers. Each
 * further worker needs one or two descriptors. */
#define DESCRIPTORS_LEAST 64
#define POLICY_NAMES_BYTES 256

/* --- options --- */

static int check_options(const struct coordinator_options *o, struct endpoint *ret_listen,
                         struct err *err)
{
    int error = endpoint_parse(o->listen, ret_listen, err);
    if (error < 0)
        return error;
    if (ret_listen->is_unix)
        return err_set(err, -EINVAL,
                       "--listen %s: expected gradpool://host:port (the Unix socket "
                       "is always there, in the state dir)",
                       o->listen);
    error = slots_check_option(o->worker_slots, err);
    if (error < 0)
        return error;
    if (o->insecure && o->require_tls)
        return err_set(err, -EINVAL, "--insecure and --require-tls contradict each other");
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - sizeof "/control.sock";
    if (strlen(o->state_dir) > most)
        return err_set(err, -EINVAL,
                       "--state-dir %s: the path has %zu bytes, but the socket in this folder "
                       "needs a path of at most %zu; choose a shorter path",
                       o->state_dir, strlen(o->state_dir), most);
    for (const char *const *name = packer_policies(); *name; name++)
        if (!o->policy || strcmp(*name, o->policy) == 0)
            return 0;
    char names[POLICY_NAMES_BYTES] = "";
    for (const char *const *name = packer_offered_policies(); *name; name++)
        text_append(names, sizeof names, "%s%s", *names ? ", " : "", *name);
    return err_set(err, -EINVAL, "--policy %s: expected one of %s", o->policy, names);
}

static char *copy(const char *text) { return text ? strdup(text) : NULL; }

static void copy_options(struct service *s, const struct coordinator_options *o)
{
    *s->options = *o;
    s->options->state_dir = copy(o->state_dir);
    s->options->operators = copy(o->operators);
    s->options->listen = NULL; /* door.tcp has the address instead */
    s->options->advertise = copy(o->advertise);
    s->options->interface_name = copy(o->interface_name);
    s->options->cores = copy(o->cores);
    s->options->worker_slots = copy(o->worker_slots);
    s->options->policy = copy(o->policy ? o->policy : "shared");
    s->options->allow_uids = copy(o->allow_uids);
    s->options->lanes_per_core = o->lanes_per_core ? o->lanes_per_core : 1;
    s->options->aggregators_min = o->aggregators_min ? o->aggregators_min : 1;
    if (o->limits.most[0] == 0)
        limits_init(&s->options->limits);
}

static void free_options(struct coordinator_options *o)
{
    free((char *)o->state_dir);
    free((char *)o->operators);
    free((char *)o->advertise);
    free((char *)o->interface_name);
    free((char *)o->cores);
    free((char *)o->worker_slots);
    free((char *)o->policy);
    free((char *)o->allow_uids);
}

/* --- the store --- */

static int restore_tensor_row(struct service *s, const struct store_tensor *row)
{
    if (row->dtype == STORE_STAGE_DTYPE)
        return stages_restore(s, row);
    return row->dtype == STORE_TABLE_DTYPE ? job_table_restore(s, row) : tensor_restore(s, row);
}

static int restore_piece_row(struct service *s, const struct store_piece *row)
{
    struct job *job = jobs_find_id(s, row->job);
    struct job_table *table = job ? job_table_find(job, row->tensor) : NULL;
    return table ? job_shard_restore(table, row) : piece_restore(s, row);
}

static int restore_row(void *context, const struct store_row *row)
{
    struct service *s = context;
    switch (row->table) {
    case STORE_SERVICE: *s->numbers = row->service; return 0;
    case STORE_TENANT: return tenants_restore(s, &row->tenant);
    case STORE_AGGREGATOR: return aggregator_restore(s, &row->aggregator);
    case STORE_LANE: return lane_restore(s, &row->lane);
    case STORE_JOB: return jobs_restore(s, &row->job);
    case STORE_SESSION: return session_restore(s, &row->session);
    case STORE_TENSOR: return restore_tensor_row(s, &row->tensor);
    case STORE_PIECE: return restore_piece_row(s, &row->piece);
    case STORE_PROFILE: return profiles_restore(s, &row->profile);
    case STORE_POOL_JOB: return slots_restore_job(s, &row->pool_job);
    case STORE_POOL_WORKER: return slots_restore_worker(s, &row->pool_worker);
    default: return -EBADMSG;
    }
}

/* Returns whether every restored tensor has a piece, because other functions rely on this without a
 * check. */
static bool is_whole(const struct service *s)
{
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        for (size_t i = 0; i < job->tensors_count; i++)
            if (job->tensors[i]->pieces_count == 0)
                return false;
    }
    return true;
}

static int restore(struct service *s, struct err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/state.db", s->options->state_dir);
    int error = store_sqlite_open(path, s->options->store_pages_max, &s->store, err);
    if (error < 0)
        return error;
    *s->numbers = (struct store_service){
        .key = 1, .next_aggregator = 1, .next_lane = 1, .next_job = 1, .next_task = 1};
    error = store_load(s->store, restore_row, s, err);
    if (error < 0)
        return error;
    if (!is_whole(s))
        return err_set(err, -EBADMSG,
                       "%s: rows of pieces are missing. Restore the file from a copy; or move %s* "
                       "away, to start without jobs and tenants",
                       path, path);
    list_for_each_entry (struct job, job, &s->jobs, link) {
        profiles_recall(job, job->tensors, job->tensors_count);
        predict_shares(job);
        table_copies_restore(job);
        shards_check_restored(job);
    }
    s->numbers->incarnation++;
    store_begin(s->store);
    service_put_numbers(s);
    return store_commit(s->store, err);
}

/* --- events --- */

void coordinator_signal(struct coordinator *c, int number) { stopping_signal(c->service, number); }

static void signal_ready(struct source *source, uint32_t events)
{
    struct service *s = container_of(source, struct coordinator, signals)->service;
    struct signalfd_siginfo info;
    if (read(source->fd, &info, sizeof info) == sizeof info)
        stopping_signal(s, (int)info.ssi_signo);
}

static void try_again(struct timer *timer)
{
    recovery_place_stranded(container_of(timer, struct retries, stranded)->service);
}

static void are_fit(struct timer *timer)
{
    keeping_check_all(container_of(timer, struct retries, unfit)->service);
}

/* --- starting, ending --- */

static void destroy_objects(struct service *s)
{
    timelines_destroy(s);
    peers_destroy(s);
    list_for_each_safe (job, &s->jobs)
        jobs_destroy(list_entry(job, struct job, link));
    moving_destroy(s);
    scaling_moves_destroy(s);
    orders_destroy(s);
    saving_destroy(s);
    filings_destroy(s);
    list_for_each_safe_entry (struct aggregator, a, &s->aggregators, link)
        aggregator_destroy(a);
    tenants_destroy(s);
}

typedef void (*destroy_fn)(struct service *s);
typedef int (*create_fn)(struct service *s);

/* Frees the state of the rooms. Jobs, peers and aggregators no longer exist: the caller has freed
 * them, or create_service() has failed before there were any. */
static void destroy_service(struct service *s)
{
    static const destroy_fn rooms[] = {
        settings_destroy, display_destroy,  slots_destroy,   measuring_destroy, outliving_destroy,
        scaling_destroy,  profiles_destroy, leavers_destroy, silence_destroy,   fleet_destroy,
        looks_destroy,    liveness_destroy, door_destroy,
    };
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        rooms[i](s);
    if (s->retries) {
        timer_stop(&s->retries->stranded);
        timer_stop(&s->retries->unfit);
    }
    free(s->retries);
    free(s->events);
    free(s->works);
    free(s->identity);
    free(s->numbers);
    if (s->loop && s->loop->epoll_fd >= 0)
        close(s->loop->epoll_fd);
    free(s->loop);
    if (s->options)
        free_options(s->options);
    free(s->options);
    free(s);
}

static const struct hooks hooks = {.peer = &hooks_of_peers,
                                   .aggregator = &hooks_of_aggregators,
                                   .job = &hooks_of_jobs,
                                   .service = &hooks_of_service};

static void init_retries(struct service *s)
{
    s->retries->service = s;
    timer_init(&s->retries->stranded, try_again);
    timer_init(&s->retries->unfit, are_fit);
}

static bool create_plain(struct service *s)
{
    s->loop = calloc(1, sizeof *s->loop);
    s->numbers = calloc(1, sizeof *s->numbers);
    s->identity = calloc(1, sizeof *s->identity);
    s->works = calloc(1, sizeof *s->works);
    s->events = calloc(1, sizeof *s->events);
    s->retries = calloc(1, sizeof *s->retries);
    if (s->loop)
        s->loop->epoll_fd = -1;
    if (s->retries)
        init_retries(s);
    if (!s->loop || !s->numbers || !s->identity || !s->works || !s->events || !s->retries)
        return false;
    gethostname(s->identity->node, sizeof s->identity->node - 1);
    s->identity->started_ns = clock_now_ns();
    list_init(&s->works->migrations);
    list_init(&s->works->orders);
    list_init(&s->works->savings);
    list_init(&s->works->filings);
    list_init(&s->works->timelines);
    return true;
}

/* Creates the state of each room. A room is created after the rooms that it uses. */
static int create_rooms(struct service *s)
{
    static const create_fn rooms[] = {
        door_create,    liveness_create, looks_create,    fleet_create,     silence_create,
        leavers_create, profiles_create, scaling_create,  outliving_create, measuring_create,
        slots_create,   display_create,  settings_create,
    };
    int error = create_plain(s) ? 0 : -ENOMEM;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms && error == 0; i++)
        error = rooms[i](s);
    return error;
}

static struct service *create_service(const struct coordinator_options *o)
{
    struct service *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->on = &hooks;
    list_init(&s->jobs);
    list_init(&s->aggregators);
    s->options = calloc(1, sizeof *s->options);
    if (s->options)
        copy_options(s, o);
    if (s->options && create_rooms(s) == 0) {
        stopping_init(s);
        return s;
    }
    destroy_service(s);
    return NULL;
}

static int watch_signals(struct coordinator *c)
{
    sigset_t set = signals_that_end();
    c->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return c->signals.fd < 0 ? -errno : loop_watch(c->service->loop, &c->signals, EPOLLIN);
}

static int start_loop(struct coordinator *c, struct err *err)
{
    struct service *s = c->service;
    int error = tenants_init(s) ?: loop_init(s->loop) ?: watch_signals(c);
    if (error == 0 && !s->fleet->provisioner)
        error = provisioner_local_create(&s->fleet->provisioner);
    return error < 0 ? err_set(err, error, "cannot start: %s", err_text(error)) : 0;
}

static int listen_all(struct service *s, struct err *err)
{
    struct endpoint *local = &s->door->local->endpoint;
    local->is_unix = true;
    snprintf(local->host, sizeof local->host, "%s/control.sock", s->options->state_dir);
    int error = listener_open(s, s->door->tcp, s->options->interface_name, err)
                    ?: listener_open(s, s->door->local, NULL, err);
    if (error == 0 && s->options->operators)
        error = state_dir_admit(s->options->state_dir, local->host, s->options->operators, err);
    return error == 0 ? advertise_choose(s, err) : error;
}

static int start(struct coordinator *c, struct err *err)
{
    struct service *s = c->service;
    int error = descriptors_raise(DESCRIPTORS_LEAST, "gradpool serve", err);
    if (error == 0)
        error = start_loop(c, err);
    if (error == 0)
        error = state_dir_create(s->options->state_dir, err);
    if (error == 0)
        error = state_dir_lock(s->options->state_dir, &c->lock_fd, err);
    if (error == 0)
        error = fleet_init(s, err);
    if (error == 0)
        error = restore(s, err);
    if (error == 0)
        error = listen_all(s, err);
    if (error == 0 && (error = display_start(s)) < 0)
        err_set(err, error, "cannot watch the web server: %s", err_text(error));
    return error;
}

static void say_who_may_come(const struct service *s)
{
    if (s->options->insecure)
        log_warn("--insecure: every process that reaches %s may start and join jobs; without the "
                 "option, jobs of other hosts need keys (gradpool tenant add)",
                 s->identity->endpoint_url);
    else if (s->options->require_tls)
        log_info("all connections over TCP need a key (gradpool tenant add)");
    else if (!endpoint_is_loopback(&s->door->tcp->endpoint))
        log_info("processes of other hosts need a key (gradpool tenant add), processes of this "
                 "host need none");
}

static struct coordinator *create(const struct coordinator_options *options)
{
    struct coordinator *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->lock_fd = -1;
    c->signals = (struct source){.fd = -1, .ready = signal_ready};
    c->service = create_service(options);
    if (c->service)
        return c;
    free(c);
    return NULL;
}

/* Frees the provisioner and the display, because coordinator_create() owns both objects, even if it
 * fails. */
static void destroy_given(const struct coordinator_options *options)
{
    if (options->provisioner)
        options->provisioner->ops->destroy(options->provisioner);
    if (options->display.context)
        options->display.destroy(options->display.context);
}

static void go_up(struct service *s)
{
    log_info("listening on %s, state in %s, policy %s, start number %llu",
             s->identity->endpoint_url, s->options->state_dir, s->options->policy,
             (unsigned long long)s->numbers->incarnation);
    say_who_may_come(s);
    tenants_end_revoked(s);
    liveness_start(s);
    leavers_start(s);
    scaling_restored(s);
    slots_restored(s);
    settings_fill(s);
    measuring_wake(s);
    fleet_check(s);
}

int coordinator_create(const struct coordinator_options *options, struct coordinator **ret_c,
                       struct err *err)
{
    struct coordinator_options whole = *options;
    struct endpoint listen;
    struct coordinator *c = NULL;
    char state_dir[PATH_MAX];
    whole.state_dir = state_dir;
    int error = state_dir_whole(options->state_dir, state_dir, sizeof state_dir, err)
                    ?: check_options(&whole, &listen, err);
    if (error == 0 && !(c = create(&whole)))
        error = err_set(err, -ENOMEM,
                        "gradpool serve has no memory for the coordinator; raise its memory limit");
    if (error < 0) {
        destroy_given(options);
        return error;
    }
    c->service->fleet->provisioner = options->provisioner;
    c->service->door->tcp->endpoint = listen;
    error = start(c, err);
    if (error < 0) {
        coordinator_destroy(c);
        return error;
    }
    go_up(c->service);
    *ret_c = c;
    return 0;
}

void coordinator_destroy(struct coordinator *c)
{
    if (!c)
        return;
    struct service *s = c->service;
    struct provisioner *provisioner = s->fleet->provisioner;
    door_close(s);
    display_end(s);
    destroy_objects(s);
    store_close(s->store);
    destroy_service(s);
    if (provisioner)
        provisioner->ops->destroy(provisioner);
    if (c->signals.fd >= 0)
        close(c->signals.fd);
    if (c->lock_fd >= 0)
        close(c->lock_fd);
    free(c);
}

int coordinator_step(struct coordinator *c, uint64_t deadline_ns)
{
    struct service *s = c->service;
    if (s->phase == SERVICE_DOWN)
        return 0;
    int error = loop_step(s->loop, deadline_ns);
    return error < 0 ? error : s->phase != SERVICE_DOWN;
}

int coordinator_run(struct coordinator *c)
{
    for (;;) {
        int going = coordinator_step(c, UINT64_MAX);
        if (going < 0)
            return going;
        if (going == 0)
            return c->service->ending->ended_by;
    }
}

const char *coordinator_endpoint(const struct coordinator *c)
{
    return c->service->identity->endpoint_url;
}
