/* Conducts `faults`: jobs train, their tasks move, and strikes hit processes of jobs and service in
 * random order. Owns the service. Must never strike a process id that may belong to another
 * process. */
#include "bench/faults/faults.h"

#include "bench/faults/company.h"
#include "bench/faults/hostility.h"
#include "bench/faults/operator/drains.h"
#include "bench/faults/operator/roam.h"
#include "bench/faults/operator/snapshots.h"
#include "bench/faults/strike.h"
#include "bench/faults/watch.h"
#include "bench/lib/host.h"
#include "bench/lib/own_service.h"
#include "bench/savings/look.h"
#include "svc/base/clock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#define CALM_MS_MIN 200
#define CALM_MS_MAX 1200
#define STOP_MS_MAX 2500
#define MOVE_MS_MAX 80 /* longest time from the order of a move to the next strike */
#define SOMEBODY (ELASTIC * PAIR + (JOBS - ELASTIC) * MEMBERS_MOST)

#define WAYS 10

#define HOSTILE_SLOT_MS 500  /* length of an attack in a short run */
#define HOSTILE_LONG_MS 1500 /* length of an attack in a long run */
#define COMPLETE_S 20        /* a run of fewer seconds is a short run */
/* A short run is extended until each kind of strike has happened, up to this multiple of its
 * length. */
#define SLOWER 6

struct conductor {
    const struct faults *about;
    uint64_t began_ns;
    struct faults_result *result;
    struct service service;
    struct service_setting setting;
    struct company company;
    struct watch watch;
    struct roam roam;
    struct drains drains;
    struct snapshots snapshots;
    struct hostile hostile;
    char listen[HOSTILE_LISTEN_BYTES];
    pid_t leaving; /* pid of the aggregator that was ordered to end and still runs; 0: none */
    uint64_t random;
    /* kinds of strikes that are left in this turn; a turn has every kind once */
    uint8_t ways[WAYS];
    uint32_t ways_left;
};

static uint32_t draw(struct conductor *c, uint32_t below)
{
    c->random = c->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(c->random >> 33) % below;
}

/* Checks all processes. An unexpected end of the coordinator is reported, and the coordinator is
 * restarted. */
static int tend(struct conductor *c, bool starts_anew)
{
    watch_look(&c->watch);
    if (c->service.coordinator > 0 && service_has_ended(&c->service)) {
        watch_bury_coordinator(&c->watch, ENDS_UNKNOWN);
        int r = service_start_again(&c->service, &c->setting);
        if (r < 0)
            return r;
    }
    return company_tend(&c->company, starts_anew);
}

static int be_calm(struct conductor *c, uint64_t until_ns)
{
    int r = 0;
    while (r == 0 && clock_now_ns() < until_ns) {
        company_sleep(&c->company, until_ns);
        r = tend(c, true);
    }
    return r;
}

/* --- strikes --- */

/* Returns an aggregator that is up. If only one aggregator is up, returns none, because the jobs
 * need this aggregator. */
static pid_t some_aggregator(struct conductor *c)
{
    pid_t pids[SERVICE_PROCESSES_MAX];
    int count = look_at_aggregators(&c->service, pids, SERVICE_PROCESSES_MAX), staying = 0;
    for (int i = 0; i < count; i++)
        if (pids[i] != c->leaving)
            pids[staying++] = pids[i];
    return staying > 1 ? pids[draw(c, (uint32_t)staying)] : 0;
}

struct chosen {
    size_t job;
    uint32_t rank;
    struct trainer *trainer;
};

/* Returns a random worker. The pid is 0 if the worker is absent; the caller must then not
 * strike. */
static struct chosen some_worker(struct conductor *c)
{
    static struct trainer nobody;
    uint32_t i = draw(c, SOMEBODY), member = i - ELASTIC * PAIR;
    struct chosen who = {.job = i / PAIR, .rank = i % PAIR};
    if (i >= ELASTIC * PAIR)
        who =
            (struct chosen){.job = ELASTIC + member / MEMBERS_MOST, .rank = member % MEMBERS_MOST};
    bool may_strike = company_may_strike(&c->company, who.job);
    who.trainer = may_strike ? &c->company.jobs[who.job].trainers[who.rank] : &nobody;
    return who;
}

/* Prints a strike, so that a log shows the strikes before a failure. */
static void tell(const struct conductor *c, const char *what, const char *whom, pid_t pid)
{
    double at_s = (double)(clock_now_ns() - c->began_ns) / 1e9;
    fprintf(stderr, "# %.3f s: %s %s, pid %d\n", at_s, what, whom, (int)pid);
}

static void tell_worker(const struct conductor *c, const char *what, const struct chosen *who)
{
    char name[64];
    snprintf(name, sizeof name, "%s, rank %u", c->company.jobs[who->job].name, who->rank);
    tell(c, what, name, who->trainer->pid);
}

static int kill_aggregator(struct conductor *c)
{
    pid_t pid = some_aggregator(c);
    if (pid <= 0 || kill(pid, 0) < 0)
        return 0;
    watch_strike(&c->watch, pid);
    kill(pid, SIGKILL);
    tell(c, "killed", "an aggregator", pid);
    c->result->kills_aggregator++;
    return 0;
}

/* Sends SIGTERM to an aggregator, which moves its tasks to other aggregators and then ends. Only
 * one aggregator at a time ends in this way. */
static int retire_aggregator(struct conductor *c)
{
    if (c->leaving > 0 && kill(c->leaving, 0) == 0)
        return 0;
    c->leaving = 0;
    pid_t pid = some_aggregator(c);
    if (pid <= 0 || kill(pid, 0) < 0)
        return 0;
    watch_retire(&c->watch, pid);
    kill(pid, SIGTERM);
    tell(c, "ended as planned", "an aggregator", pid);
    c->leaving = pid;
    c->result->retired++;
    return 0;
}

static int kill_worker(struct conductor *c)
{
    struct chosen who = some_worker(c);
    if (who.trainer->pid <= 0)
        return 0;
    company_doom(&c->company, who.job, who.rank);
    company_hurt(&c->company, who.job, who.rank, clock_now_ns());
    company_kill(&c->company, who.job, who.rank);
    tell_worker(c, "killed", &who);
    c->result->kills_worker++;
    return 0;
}

/* Sends `signal` to the coordinator, waits for its end, and starts it again. `status`: expected
 * exit status. */
static int end_and_start_coordinator(struct conductor *c, int signal, int status)
{
    uint64_t began_ns = clock_now_ns();
    kill(c->service.coordinator, signal);
    watch_bury_coordinator(&c->watch, status);
    int r = be_calm(c, clock_now_ns() + draw(c, 1000) * NS_PER_MS);
    if (r == 0)
        r = service_start_again(&c->service, &c->setting);
    blame_stood_still(&c->company.losses, clock_now_ns() - began_ns);
    return r;
}

static int kill_coordinator(struct conductor *c)
{
    tell(c, "killed", "the coordinator", c->service.coordinator);
    c->result->kills_coordinator++;
    return end_and_start_coordinator(c, SIGKILL, 128 + SIGKILL);
}

/* Restarts the coordinator with SIGTERM; the jobs continue with the next coordinator. */
static int restart_coordinator(struct conductor *c)
{
    tell(c, "restarted", "the coordinator", c->service.coordinator);
    c->result->restarts++;
    return end_and_start_coordinator(c, SIGTERM, 0);
}

/* Stops a process for some time. The pid cannot belong to another process meanwhile, because the
 * bench calls wait() only later. */
static void hold_still(struct conductor *c, pid_t pid)
{
    const uint64_t stop_ns = (100 + draw(c, STOP_MS_MAX - 100)) * NS_PER_MS;
    const struct timespec nap = {(time_t)(stop_ns / NS_PER_S), (long)(stop_ns % NS_PER_S)};
    c->result->stops++;
    nanosleep(&nap, NULL);
    kill(pid, SIGCONT);
    blame_stood_still(&c->company.losses, stop_ns);
}

static int stop_worker(struct conductor *c)
{
    struct chosen who = some_worker(c);
    pid_t pid = who.trainer->pid;
    if (pid <= 0 || kill(pid, SIGSTOP) < 0)
        return 0;
    atomic_fetch_add(&company_board(&c->company, who.job, who.rank)->stops, 1);
    tell_worker(c, "stopped", &who);
    hold_still(c, pid);
    return 0;
}

static int stop_somebody(struct conductor *c)
{
    uint32_t kind = draw(c, 3);
    if (kind == 1)
        return stop_worker(c);
    pid_t pid = kind == 0 ? some_aggregator(c) : c->service.coordinator;
    if (pid <= 0 || kill(pid, SIGSTOP) < 0)
        return 0;
    tell(c, "stopped", kind == 0 ? "an aggregator" : "the coordinator", pid);
    hold_still(c, pid);
    return 0;
}

static int cut_worker(struct conductor *c)
{
    uint64_t now_ns = clock_now_ns();
    struct chosen who = some_worker(c);
    if (who.trainer->pid <= 0 || strike_cut(who.trainer->pid, draw(c, 256)) < 0)
        return 0;
    tell_worker(c, "cut off", &who);
    company_hurt(&c->company, who.job, who.rank, now_ns);
    c->result->cuts++;
    return 0;
}

/* Cuts a connection of an aggregator. The bench does not know the peer of this connection, so
 * failures of all workers are excused for 10 s (B16). */
static int cut_aggregator(struct conductor *c)
{
    pid_t pid = some_aggregator(c);
    uint64_t now_ns = clock_now_ns();
    if (pid <= 0 || strike_cut(pid, draw(c, 256)) < 0)
        return 0;
    for (size_t job = 0; job < JOBS; job++)
        for (uint32_t rank = 0; rank < WORKERS_MAX; rank++)
            company_hurt(&c->company, job, rank, now_ns);
    tell(c, "cut off", "an aggregator", pid);
    c->result->cuts++;
    return 0;
}

static int cut_somebody(struct conductor *c)
{
    return draw(c, 3) == 0 ? cut_aggregator(c) : cut_worker(c);
}

/* Orders a random member to resize its job by one worker. No effect if the member is absent. */
static int resize_elastic(struct conductor *c)
{
    size_t job = ELASTIC + draw(c, JOBS - ELASTIC);
    uint32_t rank = draw(c, MEMBERS_FEWEST);
    uint32_t wanted = MEMBERS_FEWEST + draw(c, 1 + MEMBERS_MOST - MEMBERS_FEWEST);
    struct job *j = &c->company.jobs[job];
    if (!company_may_strike(&c->company, job))
        return 0;
    j->wanted = wanted;
    if (j->trainers[rank].pid > 0)
        atomic_store(&company_board(&c->company, job, rank)->wanted, wanted);
    return 0;
}

/* Begins a move of tasks shortly before the next strike, so that strikes also happen during
 * moves. */
static int move_somebody(struct conductor *c)
{
    uint32_t chance = draw(c, 1 << 16);
    roam_begin(&c->roam, c->company.jobs[draw(c, JOBS)].name, chance);
    return be_calm(c, clock_now_ns() + draw(c, MOVE_MS_MAX) * NS_PER_MS);
}

/* Runs the next command of the operator, independently of the strikes. */
static int operate(struct conductor *c)
{
    uint32_t kind = draw(c, 4), chance = draw(c, 1 << 16);
    size_t job = ELASTIC / 2 + chance % (ELASTIC - ELASTIC / 2); /* a job with update rules */
    if (kind == 0)
        drains_step(&c->drains, chance);
    if (kind == 1)
        snapshots_step(&c->snapshots, c->company.jobs[job].name, company_seed(&c->company, job),
                       PAIR);
    return kind > 1 ? 0 : be_calm(c, clock_now_ns() + draw(c, MOVE_MS_MAX) * NS_PER_MS);
}

static void take_operated(struct conductor *c)
{
    struct faults_result *result = c->result;
    result->drains = c->drains.done;
    result->undone = c->drains.undone;
    result->drains_refused = c->drains.refused;
    result->snapshots = c->snapshots.done;
    result->snapshots_refused = c->snapshots.refused;
    result->elements_checked += c->snapshots.elements_checked;
    result->wrong += c->snapshots.wrong;
    result->unnamed += c->snapshots.unnamed;
    result->hangs += c->drains.errand.hangs + c->snapshots.errand.hangs;
    result->crashes += c->roam.crashes + c->drains.errand.crashes + c->snapshots.errand.crashes;
}

static int begin_hostile(struct conductor *c)
{
    const bool is_short = c->about->seconds < FAULTS_LONG_S;
    const struct hostile_pace pace = {.slot_ms = is_short ? HOSTILE_SLOT_MS : HOSTILE_LONG_MS,
                                      .rest_ms = is_short ? HOSTILE_SLOT_MS : 0};
    c->hostile.service = &c->service;
    return hostile_begin(&c->hostile, c->listen, c->about->seed, &pace);
}

static void end_hostile(struct conductor *c)
{
    hostile_end(&c->hostile);
    c->result->attacks = c->hostile.attacks;
    c->result->attack_kinds = c->hostile.kinds;
    c->result->crashes += c->hostile.crashes;
}

/* Draws a kind of strike. Each kind is drawn once before any kind is repeated. */
static uint32_t draw_way(struct conductor *c)
{
    if (c->ways_left == 0) {
        c->ways_left = WAYS;
        for (uint8_t i = 0; i < WAYS; i++)
            c->ways[i] = i;
    }
    uint32_t at = draw(c, c->ways_left);
    uint8_t way = c->ways[at];
    c->ways[at] = c->ways[--c->ways_left];
    return way;
}

typedef int (*strike_fn)(struct conductor *c);

static int strike(struct conductor *c)
{
    static const strike_fn ways[WAYS] = {
        kill_aggregator, kill_worker,    kill_coordinator,    stop_somebody,     cut_somebody,
        stop_somebody,   resize_elastic, restart_coordinator, retire_aggregator, kill_worker};
    return ways[draw_way(c)](c);
}

/* --- all --- */

/* Returns whether each kind of strike and of order has happened. */
static bool is_complete(const struct conductor *c)
{
    const struct faults_result *r = c->result;
    return r->kills_aggregator && r->kills_worker && r->kills_coordinator && r->restarts &&
           r->retired && r->stops && r->cuts && c->drains.done + c->drains.refused &&
           c->snapshots.done;
}

/* Returns whether the run continues. On a slow host a run continues until each kind of strike and
 * order has happened. */
static bool goes_on(const struct conductor *c)
{
    uint64_t now_ns = clock_now_ns(), for_ns = c->about->seconds * NS_PER_S;
    return now_ns < c->began_ns + for_ns || (c->about->seconds >= COMPLETE_S && !is_complete(c) &&
                                             now_ns < c->began_ns + SLOWER * for_ns);
}

static int rage(struct conductor *c)
{
    c->began_ns = clock_now_ns();
    int r = tend(c, true);
    if (r == 0)
        r = be_calm(c, clock_now_ns() + NS_PER_S);
    while (r == 0 && goes_on(c)) {
        r = draw(c, 4) > 0 ? move_somebody(c) : 0;
        if (r == 0)
            r = operate(c);
        if (r == 0)
            r = strike(c);
        uint64_t calm_ms = CALM_MS_MIN + draw(c, CALM_MS_MAX - CALM_MS_MIN);
        if (r == 0)
            r = be_calm(c, clock_now_ns() + calm_ms * NS_PER_MS);
    }
    return r;
}

/* Waits until every worker has ended; workers that hang are killed. */
static int let_end(struct conductor *c)
{
    company_order_end(&c->company);
    while (company_alive(&c->company) > 0) {
        int r = tend(c, false);
        if (r < 0)
            return r;
        if (company_alive(&c->company) > 0)
            company_sleep(&c->company, clock_now_ns() + NS_PER_S);
    }
    return 0;
}

static void keep_log(const struct service *s)
{
    char path[PATH_MAX + 16];
    if (*s->folder && service_keep_log(s, path, sizeof path) == 0)
        fprintf(stderr, "# the service's log is kept: %s\n", path);
}

static int train(struct conductor *c)
{
    int r = begin_hostile(c);
    if (r == 0)
        r = rage(c);
    end_hostile(c);
    roam_end(&c->roam);
    snapshots_end(&c->snapshots); /* at this point the snapshot's job must still exist */
    int ended = let_end(c);
    drains_end(&c->drains); /* a drain that waits for a rank ends with the last job */
    take_operated(c);
    fprintf(stderr, "# moves: %" PRIu64 " ordered, %" PRIu64 " done as ordered\n", c->roam.asked,
            c->roam.done);
    return r < 0 ? r : ended;
}

static int run(struct conductor *c)
{
    int r = company_init(&c->company);
    if (r < 0)
        return r;
    c->roam.service = &c->service;
    c->drains.errand = (struct errand){.service = &c->service, .name = "drain"};
    c->snapshots.errand = (struct errand){.service = &c->service, .name = "snapshot"};
    r = watch_init(&c->watch, &c->service, &c->company);
    if (r == 0)
        r = service_start_as(&c->service, &c->setting);
    if (r == 0)
        r = train(c);
    watch_end(&c->watch);
    if (r < 0 || faults_failed(c->result))
        keep_log(&c->service);
    service_stop(&c->service);
    company_fini(&c->company);
    return r;
}

bool faults_failed(const struct faults_result *r)
{
    return r->wrong || r->hangs || r->unnamed || r->crashes;
}

int faults_run(const struct faults *faults, struct faults_result *ret_result)
{
    char cores[32];
    struct faults_result result = {0};
    snprintf(cores, sizeof cores, "%d,%d", process_core(0), process_core(1));
    struct conductor c = {.about = faults,
                          .result = &result,
                          .random = faults->seed + 1,
                          .setting = {.cores = process_core(0) == process_core(1) ? NULL : cores,
                                      .aggregators = "3",
                                      .scale = "off",
                                      .stop = "auto",
                                      .piece_max = "262144",
                                      .lanes_per_core = "2"}};
    hostile_find_listen(c.listen);
    c.setting.listen = c.listen; /* the service has the same address after a restart */
    c.company = (struct company){.about = faults, .result = &result, .service = &c.service};
    int r = run(&c);
    if (r == 0)
        *ret_result = result;
    return r;
}
