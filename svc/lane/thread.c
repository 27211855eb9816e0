/* The thread of a lane. It is bound to the core, sleeps when there is no work, and runs calls of
 * the control thread. Owns arena, fabrics and lane. The thread never spins: without work it sleeps
 * in poll(2). RULES.md: A8, A9. */
#include "svc/lane/thread.h"

#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/system/shortage.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Longest turn: the time of a few long chunks. Other jobs wait at most this long (A77). */
#define TURN_NS (250 * NS_PER_US)
#define STOP_DEADLINE_NS (2 * NS_PER_S)

struct lane_thread {
    struct lane_thread_options options;
    pthread_t thread;
    struct lane *lane;
    struct arena *arena;
    struct fabric *fabrics[LANE_FABRICS_MAX];
    size_t fabrics_count;
    char shm[FABRIC_ADDRESS_BYTES_MAX], ofi[FABRIC_ADDRESS_BYTES_MAX];
    /* core and addresses of the lane, for log lines */
    char about[2 * FABRIC_ADDRESS_BYTES_MAX + 512];
    int wake_fd;
    atomic_bool is_asleep; /* the thread sleeps until wake_fd or one of asleep_fds is readable */
    atomic_int asleep_fds[LANE_FABRICS_MAX];

    /* protects the fields below except has_news; never locked during a turn */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_ready, is_stopping;
    struct err start_error;
    int (*call)(struct lane *lane, void *context);
    void *call_context;
    int call_result;
    /* a call or a stop is pending; the thread reads this flag between turns without the mutex */
    atomic_bool has_news;
};

/* Continues without shared memory. Workers on the same host then use the network, which is
 * slower. */
static int go_without(struct lane_thread *t, int error)
{
    if (!shortage_is_refusal(error) || !t->options.ofi_address)
        return error;
    log_warn("the lane on %s uses only the network, no shared memory: the system call memfd_create "
             "is refused (%s); allow memfd_create in the seccomp profile",
             t->about, err_text(error));
    t->start_error = (struct err){0};
    return 0;
}

static int open_fabric(struct lane_thread *t, const char *kind, const char *address,
                       char *ret_address)
{
    struct fabric *fabric = NULL;
    char lack[SHORTAGE_BYTES];
    if (!address)
        return 0;
    int error = fabric_open(kind, t->options.fabric_options, &fabric)
                    ?: fabric_listen(fabric, address, ret_address);
    if (error < 0) {
        fabric_close(fabric);
        return err_set(&t->start_error, error, "the lane on %s cannot listen on %s %s: %s",
                       t->about, kind, address,
                       shortage_text(error, SHORTAGE_OTHER, lack, sizeof lack));
    }
    t->fabrics[t->fabrics_count++] = fabric;
    return 0;
}

static void bind_to_core(struct lane_thread *t)
{
    snprintf(t->about, sizeof t->about, "any core");
    if (!t->options.cores)
        return;
    struct core core = cores_at(t->options.cores, t->options.position);
    int error = cores_bind_thread(t->options.cores, t->options.position);
    if (error < 0)
        log_warn("a lane runs without a core of its own, because binding to core %u failed: %s; "
                 "see taskset -p, and the cpuset of the cgroup",
                 core.index,
                 error == -ENOTSUP ? "HWLOC_SYNTHETIC describes another machine" : err_text(error));
    else
        snprintf(t->about, sizeof t->about, "core %u (cpu %u, NUMA node %d)", core.index, core.pu,
                 core.numa);
}

static void describe_fabrics(struct lane_thread *t)
{
    for (size_t i = 0; i < t->fabrics_count; i++) {
        size_t used = strlen(t->about);
        snprintf(t->about + used, sizeof t->about - used, "; %s", fabric_describe(t->fabrics[i]));
    }
}

static int open_all(struct lane_thread *t)
{
    struct lane_options options = {.incarnation = t->options.incarnation,
                                   .kernels = t->options.kernels,
                                   .policy = t->options.policy,
                                   .turn_ns = TURN_NS,
                                   .job_failed = t->options.job_failed,
                                   .moving_news = t->options.moving_news,
                                   .memory_wanted = t->options.memory_wanted,
                                   .context = t->options.context};
    char lack[SHORTAGE_BYTES];
    bind_to_core(t);
    if (t->options.cores)
        options.cache_bytes = cores_at(t->options.cores, t->options.position).cache_bytes;
    int error = arena_create(t->options.cores, t->options.position, &t->arena);
    if (error < 0)
        return err_set(
            &t->start_error, error, "the lane on %s cannot create its memory arena: %s", t->about,
            shortage_text(error == -EAGAIN ? -ENOMEM : error, SHORTAGE_OTHER, lack, sizeof lack));
    error = open_fabric(t, "shm", t->options.shm_address, t->shm);
    if (error < 0)
        error = go_without(t, error);
    if (error == 0)
        error = open_fabric(t, "ofi", t->options.ofi_address, t->ofi);
    if (error < 0)
        return error;
    describe_fabrics(t);
    options.arena = t->arena;
    options.fabrics_count = t->fabrics_count;
    memcpy(options.fabrics, t->fabrics, sizeof t->fabrics);
    return lane_create(&options, &t->lane);
}

static void close_all(struct lane_thread *t)
{
    for (size_t i = 0; i < t->fabrics_count; i++)
        fabric_close(t->fabrics[i]);
    lane_destroy(t->lane);
    arena_destroy(t->arena);
}

static void carry_out_call(struct lane_thread *t)
{
    uint64_t ticks;
    while (read(t->wake_fd, &ticks, sizeof ticks) < 0 && errno == EINTR) {
    }
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->has_news, t->is_stopping);
    if (t->call) {
        t->call_result = t->call(t->lane, t->call_context);
        t->call = NULL;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->mutex);
}

static int sleep_ms(const struct lane *lane)
{
    uint64_t next_ns = lane_next_ns(lane);
    return next_ns == 0 ? -1 : clock_poll_ms(next_ns, clock_now_ns());
}

/* Sleeps until a fabric or the control thread has work. Returns at once if work is pending. */
static void sleep_until_news(struct lane_thread *t, int timeout_ms)
{
    struct pollfd fds[LANE_FABRICS_MAX + 1] = {{.fd = t->wake_fd, .events = POLLIN}};
    for (size_t i = 0; i < t->fabrics_count; i++) {
        struct fabric_wait wait;
        if (fabric_arm(t->fabrics[i], &wait) < 0)
            return;
        fds[i + 1] = (struct pollfd){.fd = wait.fd, .events = POLLIN};
        atomic_store(&t->asleep_fds[i], wait.fd);
    }
    atomic_store(&t->is_asleep, true);
    (void)poll(fds, t->fabrics_count + 1, timeout_ms);
    atomic_store(&t->is_asleep, false);
    for (size_t i = 0; i < t->fabrics_count; i++) {
        if (!fds[i + 1].revents)
            lane_pass_over(t->lane, i);
    }
}

static bool wants_to_stop(struct lane_thread *t)
{
    pthread_mutex_lock(&t->mutex);
    bool stops = t->is_stopping;
    pthread_mutex_unlock(&t->mutex);
    return stops;
}

static void finish_rounds(struct lane_thread *t)
{
    uint64_t deadline_ns = clock_now_ns() + STOP_DEADLINE_NS;
    while (!lane_is_quiet(t->lane) && clock_now_ns() < deadline_ns) {
        if (!lane_poll(t->lane, clock_now_ns()))
            sleep_until_news(t, clock_poll_ms(deadline_ns, clock_now_ns()));
    }
}

static void loop(struct lane_thread *t)
{
    for (;;) {
        if (atomic_load(&t->has_news)) {
            carry_out_call(t);
            if (wants_to_stop(t))
                break;
        }
        if (!lane_poll(t->lane, clock_now_ns()) && !atomic_load(&t->has_news))
            sleep_until_news(t, sleep_ms(t->lane));
    }
    finish_rounds(t);
}

static void *thread_main(void *context)
{
    struct lane_thread *t = context;
    (void)pthread_setname_np(pthread_self(), "gradpool-lane");
    int error = open_all(t);
    if (error < 0 && t->start_error.code == 0)
        err_set(&t->start_error, error, "the lane on %s: %s", t->about, err_text(error));
    pthread_mutex_lock(&t->mutex);
    t->is_ready = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    if (error == 0)
        loop(t);
    close_all(t);
    return NULL;
}

static void thread_free(struct lane_thread *t)
{
    close(t->wake_fd);
    pthread_mutex_destroy(&t->mutex);
    pthread_cond_destroy(&t->changed);
    free(t);
}

static int spawn(struct lane_thread *t, struct err *err)
{
    char lack[SHORTAGE_BYTES];
    int error = -pthread_create(&t->thread, NULL, thread_main, t);
    if (error < 0)
        return err_set(err, error, "the aggregator cannot start a thread: %s",
                       shortage_text(error, SHORTAGE_THREADS, lack, sizeof lack));
    pthread_mutex_lock(&t->mutex);
    while (!t->is_ready)
        pthread_cond_wait(&t->changed, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
    if (t->start_error.code < 0) {
        pthread_join(t->thread, NULL);
        if (err)
            *err = t->start_error;
    }
    return t->start_error.code;
}

int lane_thread_start(const struct lane_thread_options *options, struct lane_thread **ret_thread,
                      struct err *err)
{
    struct lane_thread *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->options = *options;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = t->wake_fd < 0 ? -errno : spawn(t, err);
    if (error < 0) {
        thread_free(t);
        return error;
    }
    *ret_thread = t;
    return 0;
}

static void wake(struct lane_thread *t)
{
    uint64_t one = 1;
    atomic_store(&t->has_news, true);
    while (write(t->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void lane_thread_stop(struct lane_thread *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->mutex);
    t->is_stopping = true;
    pthread_mutex_unlock(&t->mutex);
    wake(t);
    pthread_join(t->thread, NULL);
    thread_free(t);
}

int lane_thread_call(struct lane_thread *t, int (*call)(struct lane *lane, void *context),
                     void *context)
{
    pthread_mutex_lock(&t->mutex);
    t->call = call;
    t->call_context = context;
    wake(t);
    while (t->call)
        pthread_cond_wait(&t->changed, &t->mutex);
    int result = t->call_result;
    pthread_mutex_unlock(&t->mutex);
    return result;
}

bool lane_thread_is_idle(struct lane_thread *t)
{
    struct pollfd fds[LANE_FABRICS_MAX + 1] = {{.fd = t->wake_fd, .events = POLLIN}};
    if (!atomic_load(&t->is_asleep))
        return false;
    for (size_t i = 0; i < t->fabrics_count; i++)
        fds[i + 1] = (struct pollfd){.fd = atomic_load(&t->asleep_fds[i]), .events = POLLIN};
    return poll(fds, t->fabrics_count + 1, 0) == 0;
}

struct arena *lane_thread_arena(struct lane_thread *t) { return t->arena; }
const char *lane_thread_shm(const struct lane_thread *t) { return t->shm; }
const char *lane_thread_ofi(const struct lane_thread *t) { return t->ofi; }
const char *lane_thread_about(const struct lane_thread *t) { return t->about; }
