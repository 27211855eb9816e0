/* Owns all worker processes of `faults`. Restarts a failed job; in an elastic job restarts each
 * ended member. Must wait for the end of every worker; a worker that does not end counts as a
 * hang. */
#include "bench/faults/company.h"

#include "bench/faults/ends.h"
#include "bench/faults/worker/timed.h"
#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Deadline for the end of a worker, from the failure of its job or the order to end. */
#define END_NS (40 * NS_PER_S)
/* time in which a removed member has to end; shorter than the time-outs of the other members */
#define GRACE_NS (5 * NS_PER_S)
#define AWAY_MS 300 /* shortest absence of a member before its next start */
#define AWAY_MORE_MS 1500
#define COMPUTE_NS (4 * NS_PER_MS) /* emulated computing time of each round */
/* Computing time in a short run, which leaves the cores to other tests. */
#define COMPUTE_SHORT_NS (40 * NS_PER_MS)

static const char *const transports[] = {"shm", "tcp"};

static bool is_elastic(size_t job) { return job >= ELASTIC; }
static bool is_elastic_update(size_t job) { return job == JOBS - 1; }

/* At each start of a job, alternates between copies on an aggregator and copies in a worker. The
 * seed decides for an elastic job, which is not restarted. */
static enum gp_durability durability_of(const struct company *c, size_t job)
{
    bool has_updates = is_elastic(job) ? is_elastic_update(job) : job >= ELASTIC / 2;
    uint64_t turn = is_elastic(job) ? c->about->seed : job + c->jobs[job].number;
    if (!has_updates)
        return 0;
    return turn % 2 ? GP_DURABILITY_REPLICA : GP_DURABILITY_WORKER;
}

static uint64_t compute_ns_of(const struct company *c)
{
    return c->about->seconds < FAULTS_LONG_S ? COMPUTE_SHORT_NS : COMPUTE_NS;
}

static struct ledger *ledger_of(const struct company *c, size_t job)
{
    return &c->memory->ledgers[job - ELASTIC];
}

int company_init(struct company *c)
{
    void *memory =
        mmap(NULL, sizeof *c->memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    c->memory = memory;
    for (size_t job = ELASTIC; job < JOBS; job++)
        ledger_of(c, job)->grace_ns = GRACE_NS;
    for (size_t job = 0; job < JOBS; job++)
        for (uint32_t rank = 0; rank < WORKERS_MAX; rank++)
            c->jobs[job].trainers[rank].fd = -1;
    return 0;
}

void company_fini(struct company *c) { munmap(c->memory, sizeof *c->memory); }

bool company_may_strike(const struct company *c, size_t job)
{
    return !is_elastic(job) || c->jobs[job].has_begun;
}

/* Returns the seed of the job's gradients. The seed changes with each start of the job. An elastic
 * job keeps its seed, because each of its gradients contains its rank and number. */
uint64_t company_seed(const struct company *c, size_t job)
{
    return c->about->seed + (is_elastic(job) ? 0 : c->jobs[job].number);
}

struct victim_board *company_board(const struct company *c, size_t job, uint32_t rank)
{
    return &c->memory->boards[job][rank];
}

static size_t count_alive(const struct job *j)
{
    size_t alive = 0;
    for (uint32_t rank = 0; rank < WORKERS_MAX; rank++)
        alive += j->trainers[rank].pid > 0;
    return alive;
}

/* --- starting --- */

static int run_victim(const struct company *c, size_t job, uint32_t rank)
{
    const struct victim victim = {.endpoint = c->service->endpoint,
                                  .transport = transports[job % 2],
                                  .job = c->jobs[job].name,
                                  .rank = rank,
                                  .workers = PAIR,
                                  .updates = job >= ELASTIC / 2,
                                  .durability = durability_of(c, job),
                                  .seed = company_seed(c, job),
                                  .compute_ns = compute_ns_of(c),
                                  .board = company_board(c, job, rank)};
    return victim_run(&victim);
}

static int run_member(const struct company *c, size_t job, uint32_t rank)
{
    const struct job *j = &c->jobs[job];
    const struct member member = {.endpoint = c->service->endpoint,
                                  .transport = transports[rank % 2],
                                  .job = j->name,
                                  .rank = rank,
                                  .coming = j->trainers[rank].coming,
                                  .updates = is_elastic_update(job),
                                  .durability = durability_of(c, job),
                                  .begins = !j->has_begun,
                                  .seed = company_seed(c, job),
                                  .compute_ns = compute_ns_of(c),
                                  .board = company_board(c, job, rank),
                                  .ledger = ledger_of(c, job),
                                  .book = &c->memory->book};
    return member_run(&member);
}

static int start_worker(struct company *c, size_t job, uint32_t rank)
{
    struct trainer *t = &c->jobs[job].trainers[rank];
    uint32_t coming = t->coming + 1;
    memset(company_board(c, job, rank), 0, sizeof(struct victim_board));
    t->coming = coming;
    if (is_elastic(job))
        atomic_store(&ledger_of(c, job)->present[rank], coming);
    fflush(NULL); /* otherwise the child would print the buffered text again */
    pid_t pid = process_fork(SIGKILL);
    if (pid == 0) {
        setenv("GRADPOOL_TIMEOUT_MS", VICTIM_TIMEOUT, 1);
        int r = is_elastic(job) ? run_member(c, job, rank) : run_victim(c, job, rank);
        _exit(r < 0 ? ENDS_WORKER_FAILED : 0);
    }
    *t = (struct trainer){.pid = pid > 0 ? pid : 0,
                          .fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1,
                          .coming = coming};
    c->result->comings += is_elastic(job) && coming > 1;
    return pid < 0 ? -errno : 0;
}

static int start_job(struct company *c, size_t job)
{
    struct job *j = &c->jobs[job];
    int r = 0;
    j->broken_ns = 0;
    snprintf(j->name, sizeof j->name, "job-%zu-%u", job, ++j->number);
    for (uint32_t rank = 0; r == 0 && rank < PAIR; rank++)
        r = start_worker(c, job, rank);
    return r;
}

/* Chooses the name of a new elastic job, and empties the shared pages, so that no member compares
 * the new state with the state of the former job. */
static void name_elastic(struct company *c, size_t job)
{
    struct job *j = &c->jobs[job];
    j->broken_ns = 0;
    j->has_begun = false;
    j->wanted = MEMBERS_FEWEST;
    snprintf(j->name, sizeof j->name, "elastic-%zu-%u", job - ELASTIC + 1, ++j->number);
    if (is_elastic_update(job))
        memset(&c->memory->book, 0, sizeof c->memory->book);
}

static bool have_all_results(const struct company *c, size_t job)
{
    bool all = true;
    for (uint32_t rank = 0; rank < MEMBERS_FEWEST; rank++)
        all &= company_board(c, job, rank)->rounds > 0;
    return all;
}

/* Starts the first members together. Later calls start late workers, and restart members that have
 * ended. */
static int start_members(struct company *c, size_t job)
{
    struct job *j = &c->jobs[job];
    bool is_new = j->number == 0 || (j->broken_ns > 0 && count_alive(j) == 0);
    int r = 0;
    if (is_new)
        name_elastic(c, job);
    j->has_begun = j->has_begun || (!is_new && have_all_results(c, job));
    if (j->broken_ns > 0 || (!is_new && !j->has_begun))
        return 0;
    for (uint32_t rank = 0; r == 0 && rank < j->wanted; rank++)
        if (j->trainers[rank].pid <= 0 && (is_new || clock_now_ns() >= j->trainers[rank].due_ns))
            r = start_worker(c, job, rank);
    return r;
}

/* --- ending --- */

static bool was_hurt_itself(const struct company *c, size_t job, uint32_t rank,
                            const struct victim_board *failed)
{
    return blame_was_hurt(&c->jobs[job].trainers[rank].hurts, failed->failed_ns,
                          failed->patience_ns);
}

/* Returns whether a strike may be the cause. A strike against one worker ends both workers of a job
 * of two, but only the struck member of an elastic job. */
static bool was_hurt(const struct company *c, size_t job, uint32_t rank)
{
    const struct victim_board *board = company_board(c, job, rank);
    if (is_elastic(job))
        return was_hurt_itself(c, job, rank, board);
    return was_hurt_itself(c, job, 0, board) || was_hurt_itself(c, job, 1, board);
}

/* Returns whether the operator has drained all running lanes. In this case the worker that declares
 * a tensor gets an error and ends, and the other worker of the job ends, too. */
static bool was_refused(const struct company *c, size_t job)
{
    for (uint32_t rank = 0; rank < WORKERS_MAX; rank++) {
        const struct victim_board *board = company_board(c, job, rank);
        if (board->code == -ENOSPC && strstr(board->text, "drained"))
            return true;
    }
    return false;
}

/* Returns whether a copy must exist. A replica is lost if the aggregators of owner and replica end
 * shortly after each other, before the next replica is complete. */
static bool has_copies(const struct company *c, size_t job, uint32_t rank)
{
    bool is_bereft = blame_is_bereft(&c->losses, company_board(c, job, rank)->failed_ns);
    return durability_of(c, job) != GP_DURABILITY_REPLICA || !is_bereft;
}

/* Counts an error. A lost state is expected only without a copy. Every other error needs a strike
 * or a drain as cause. */
static void note_error(struct company *c, size_t job, uint32_t rank)
{
    const struct victim_board *board = company_board(c, job, rank);
    bool is_loss = board->code == -EOWNERDEAD, had_copies = has_copies(c, job, rank);
    bool has_cause = was_hurt(c, job, rank) || was_refused(c, job) || (is_loss && !had_copies);
    const char *verdict = !call_names_a_cause(board->text) ? "   <- names no cause"
                          : is_loss && had_copies          ? "   <- there were copies"
                          : !has_cause                     ? "   <- nothing was done to it"
                                                           : "";
    c->result->errors++;
    c->result->copies_lost += is_loss && !had_copies;
    c->result->unnamed += *verdict != 0;
    fprintf(stderr, "# %s, rank %u: %s%s\n", c->jobs[job].name, rank, board->text, verdict);
}

static void take_figures(struct company *c, size_t job, uint32_t rank)
{
    const struct victim_board *board = company_board(c, job, rank);
    struct faults_result *result = c->result;
    result->rounds += board->rounds;
    result->rounds_elastic += is_elastic(job) ? board->rounds : 0;
    result->resizes += board->resizes;
    result->elements_checked += board->elements_checked;
    result->wrong += board->wrong;
    result->hangs += board->hangs;
    result->unnamed += board->unnamed;
    if (board->longest_wait_ns > result->longest_wait_ns)
        result->longest_wait_ns = board->longest_wait_ns;
    if (board->code < 0)
        note_error(c, job, rank);
}

void company_note_crash(struct company *c, const char *who, pid_t pid, int status)
{
    char how[64];
    ends_name(status, how, sizeof how);
    fprintf(stderr, "# %s, pid %d, ended: %s   <- a crash\n", who, (int)pid, how);
    c->result->crashes++;
}

/* Counts a crash if a worker's exit status does not agree with its last error. Signal 9 is no crash
 * if the bench killed the worker, or a strike may have hit it. */
static void judge_end(struct company *c, size_t job, uint32_t rank, int status)
{
    const struct trainer *t = &c->jobs[job].trainers[rank];
    char who[64];
    bool was_to_die = t->was_killed || t->hurts.count > 0;
    if (ends_of_worker_fit(status, company_board(c, job, rank)->code, was_to_die))
        return;
    snprintf(who, sizeof who, "%s, rank %u", c->jobs[job].name, rank);
    company_note_crash(c, who, t->pid, status);
}

/* Collects an ended worker, and sets the time of its next start. The absence is computed from rank
 * and number of starts. The absence need not be drawn from the seed, because the time of the end is
 * not reproducible. */
static void bury(struct company *c, size_t job, uint32_t rank)
{
    struct trainer *t = &c->jobs[job].trainers[rank];
    uint64_t away_ms = AWAY_MS + (t->coming * 389u + rank * 611u) % AWAY_MORE_MS;
    judge_end(c, job, rank, process_reap(t->pid, clock_now_ns() + NS_PER_S));
    close(t->fd);
    t->pid = 0;
    t->fd = -1;
    t->due_ns = clock_now_ns() + away_ms * NS_PER_MS;
    if (is_elastic(job))
        atomic_store(&ledger_of(c, job)->present[rank], 0);
    take_figures(c, job, rank);
}

/* Ends an elastic job if a member fails before all members have results, or if a state was lost.
 * Members without a result would wait for the failed one, and the others would continue. */
static void break_elastic(struct company *c, size_t job, uint32_t rank)
{
    struct job *j = &c->jobs[job];
    int code = company_board(c, job, rank)->code;
    bool ends_all = !company_may_strike(c, job);
    if (j->broken_ns > 0 || (code != -EOWNERDEAD && (code == 0 || !ends_all)))
        return;
    j->broken_ns = clock_now_ns();
    for (uint32_t other = 0; other < WORKERS_MAX; other++)
        if (j->trainers[other].pid > 0 && (ends_all || company_board(c, job, other)->rounds == 0))
            company_kill(c, job, other);
}

static void bury_the_dead(struct company *c, size_t job)
{
    struct job *j = &c->jobs[job];
    for (uint32_t rank = 0; rank < WORKERS_MAX; rank++) {
        struct pollfd end = {.fd = j->trainers[rank].fd, .events = POLLIN};
        if (j->trainers[rank].pid <= 0 || poll(&end, 1, 0) != 1)
            continue;
        bury(c, job, rank);
        if (is_elastic(job))
            break_elastic(c, job, rank);
    }
    if (!is_elastic(job) && count_alive(j) < PAIR && j->broken_ns == 0)
        j->broken_ns = clock_now_ns();
}

/* Kills workers that should have ended, and counts them as hangs. */
static void end_the_hung(struct company *c, size_t job)
{
    struct job *j = &c->jobs[job];
    if (j->broken_ns == 0 || clock_now_ns() < j->broken_ns + END_NS)
        return;
    for (uint32_t rank = 0; rank < WORKERS_MAX; rank++)
        if (j->trainers[rank].pid > 0) {
            fprintf(stderr, "# %s, rank %u hangs\n", j->name, rank);
            c->result->hangs++;
            company_kill(c, job, rank);
            bury(c, job, rank);
        }
}

int company_tend(struct company *c, bool starts_anew)
{
    int r = 0;
    for (size_t job = 0; r == 0 && job < JOBS; job++) {
        bury_the_dead(c, job);
        end_the_hung(c, job);
        if (starts_anew && is_elastic(job))
            r = start_members(c, job);
        else if (starts_anew && count_alive(&c->jobs[job]) == 0)
            r = start_job(c, job);
    }
    return r;
}

void company_sleep(const struct company *c, uint64_t until_ns)
{
    struct pollfd ends[JOBS * WORKERS_MAX];
    for (size_t i = 0; i < JOBS * WORKERS_MAX; i++)
        ends[i] = (struct pollfd){.fd = c->jobs[i / WORKERS_MAX].trainers[i % WORKERS_MAX].fd,
                                  .events = POLLIN};
    (void)poll(ends, JOBS * WORKERS_MAX, clock_poll_ms(until_ns, clock_now_ns()));
}

size_t company_alive(const struct company *c)
{
    size_t alive = 0;
    for (size_t job = 0; job < JOBS; job++)
        alive += count_alive(&c->jobs[job]);
    return alive;
}

void company_hurt(struct company *c, size_t job, uint32_t rank, uint64_t at_ns)
{
    blame_hurt(&c->jobs[job].trainers[rank].hurts, at_ns);
}

void company_kill(struct company *c, size_t job, uint32_t rank)
{
    struct trainer *t = &c->jobs[job].trainers[rank];
    t->was_killed = true;
    kill(t->pid, SIGKILL);
}

void company_doom(struct company *c, size_t job, uint32_t rank)
{
    if (is_elastic(job))
        atomic_store(&ledger_of(c, job)->present[rank], 0);
}

static void order_member_end(struct company *c, size_t job, uint32_t rank)
{
    const struct trainer *t = &c->jobs[job].trainers[rank];
    if (t->pid > 0 && company_board(c, job, rank)->rounds == 0)
        company_kill(c, job, rank);
    atomic_store(&company_board(c, job, rank)->ends, 1);
}

void company_order_end(struct company *c)
{
    uint64_t now_ns = clock_now_ns();
    for (size_t job = 0; job < JOBS; job++) {
        atomic_store(&company_board(c, job, 0)->ends, 1);
        for (uint32_t rank = 0; is_elastic(job) && rank < WORKERS_MAX; rank++)
            order_member_end(c, job, rank);
        c->jobs[job].broken_ns = c->jobs[job].broken_ns ? c->jobs[job].broken_ns : now_ns;
    }
}
