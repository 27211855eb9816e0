/* Conducts the workers of a turn, one process each. Owns these processes and the memory shared with
 * them. Has one thread, because it forks the workers. */
#include "bench/savings/turn.h"

#include "bench/lib/host.h"
#include "bench/savings/emulated.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHILDREN_MAX (PLAN_JOBS_MAX * PLAN_WORKERS_MAX)
#define LOOK_NS (500 * NS_PER_MS)
#define DEADLINE_NS (600 * NS_PER_S)

struct conductor {
    struct turn *turn;
    /* a row for each job, a column for each rank; shared with the children */
    struct emulated_result *results;
    struct child {
        pid_t pid;
        int fd;
    } children[CHILDREN_MAX];
    size_t children_count;
    bool has_come[PLAN_JOBS_MAX];
    uint64_t begin_ns, next_look_ns, deadline_ns;
    bool has_left; /* whether a job has left */
    struct look first, last;
    /* first and last reading of the service while all jobs were present */
    struct look full_first, full_last;
};

void turn_all(struct turn *turn)
{
    for (size_t i = 0; i < turn->plan->jobs_count; i++) {
        const struct plan_job *job = &turn->plan->jobs[i];
        turn->jobs[i] = (struct turn_job){.takes_part = true,
                                          .arrive_ns = job->arrive_ns,
                                          .rounds = plan_rounds(job, job->stay_ns)};
    }
}

void turn_add(struct turn *turn, size_t job, double stay_ns, uint32_t rounds_least)
{
    uint32_t rounds = plan_rounds(&turn->plan->jobs[job], stay_ns);
    turn->jobs[job] = (struct turn_job){.takes_part = true,
                                        .rounds = rounds < rounds_least ? rounds_least : rounds};
}

double turn_predicted(const struct turn_job *job)
{
    return job->predictions ? (double)job->predicted_sum_ppm / (double)job->predictions / 1e6 : NAN;
}

uint64_t turn_wrong(const struct turn *turn)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < turn->plan->jobs_count; i++)
        wrong += turn->jobs[i].wrong;
    return wrong;
}

static struct emulated_result *result_of(struct conductor *c, size_t job, uint32_t rank)
{
    return &c->results[job * PLAN_WORKERS_MAX + rank];
}

static int start_worker(struct conductor *c, size_t job, uint32_t rank)
{
    const struct turn *turn = c->turn;
    const struct emulated worker = {.plan = turn->plan,
                                    .job = &turn->plan->jobs[job],
                                    .endpoint = turn->service->endpoint,
                                    .transport = turn->transport,
                                    .rank = rank,
                                    .rounds = turn->jobs[job].rounds};
    fflush(NULL); /* otherwise the child would print the buffered text again */
    pid_t pid = process_fork(SIGKILL);
    if (pid < 0)
        return -errno;
    if (pid == 0)
        _exit(emulated_run(&worker, result_of(c, job, rank)) < 0 ? 1 : 0);
    c->children[c->children_count++] = (struct child){pid, (int)syscall(SYS_pidfd_open, pid, 0)};
    return 0;
}

/* Starts the jobs that are due. Returns the start time of the next job. */
static int let_come(struct conductor *c, uint64_t now_ns, uint64_t *ret_next_ns)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < c->turn->plan->jobs_count; i++) {
        const struct turn_job *job = &c->turn->jobs[i];
        uint64_t due_ns = c->begin_ns + (uint64_t)job->arrive_ns;
        if (!job->takes_part || c->has_come[i])
            continue;
        if (due_ns > now_ns) {
            *ret_next_ns = due_ns < *ret_next_ns ? due_ns : *ret_next_ns;
            continue;
        }
        c->has_come[i] = true;
        for (uint32_t rank = 0; r == 0 && rank < c->turn->plan->jobs[i].workers; rank++)
            r = start_worker(c, i, rank);
    }
    return r;
}

static int look_at_known(struct conductor *c)
{
    struct look_job seen[PLAN_JOBS_MAX];
    int count = look_at_jobs(c->turn->service, seen, PLAN_JOBS_MAX);
    for (int s = 0; s < count; s++)
        for (size_t i = 0; i < c->turn->plan->jobs_count; i++) {
            struct turn_job *job = &c->turn->jobs[i];
            if (strcmp(seen[s].name, c->turn->plan->jobs[i].name) != 0)
                continue;
            job->is_known |= seen[s].alone_period_ns > 0;
            job->predictions += seen[s].has_prediction;
            job->predicted_sum_ppm += seen[s].has_prediction ? seen[s].predicted_loss_ppm : 0;
            if (seen[s].lane_ns > 0)
                job->lane_ns = seen[s].lane_ns;
        }
    return count < 0 ? count : 0;
}

static bool are_all_there(const struct conductor *c)
{
    for (size_t i = 0; i < c->turn->plan->jobs_count; i++)
        if (c->turn->jobs[i].takes_part && !c->has_come[i])
            return false;
    return !c->has_left;
}

/* Returns the number of allocated lanes. A lane counts as allocated from one measurement to the
 * next. On a service that parks no lanes only lanes with tasks count, because a lane without tasks
 * belongs to an absent job. */
static uint32_t count_allocated(const struct turn *turn, const struct look *now)
{
    uint32_t lanes = 0;
    for (size_t i = 0; i < now->lanes_count; i++)
        lanes += now->lanes[i].tasks > 0 || (turn->scales && now->lanes[i].is_open);
    return lanes;
}

static void note(struct conductor *c, const struct look *now)
{
    struct turn *turn = c->turn;
    if (turn->looks_count == 0)
        c->first = c->last = *now;
    struct turn_look *seen = &turn->looks[turn->looks_count++];
    double most_s, elapsed_s = (double)(now->at_ns - c->last.at_ns) / 1e9;
    *seen = (struct turn_look){.at_s = (double)(now->at_ns - c->first.at_ns) / 1e9,
                               .lanes = count_allocated(turn, now),
                               .used = NAN};
    if (elapsed_s > 0) {
        turn->allocated_s += seen[-1].lanes * elapsed_s;
        seen->used = look_cpu_s(&c->last, now, &most_s) / elapsed_s;
    }
    if (seen->lanes > turn->lanes_most)
        turn->lanes_most = seen->lanes;
    c->last = *now;
}

static int look(struct conductor *c)
{
    struct turn *turn = c->turn;
    struct look now;
    if (turn->looks_count == TURN_LOOKS_MAX)
        return -E2BIG;
    int r = look_at_lanes(turn->service, &now);
    if (r < 0)
        return r;
    note(c, &now);
    if (are_all_there(c)) {
        c->full_last = now;
        if (!c->full_first.at_ns)
            c->full_first = now;
    }
    c->next_look_ns = clock_now_ns() + LOOK_NS;
    bool is_due = turn->jobs_looks && turn->looks_count % turn->jobs_looks == 0;
    return is_due ? look_at_known(c) : 0;
}

static int complain_of(const struct conductor *c, int code)
{
    fprintf(stderr, "gradpool-bench: a worker failed (%d) %.1f s after the turn began\n", code,
            (double)(clock_now_ns() - c->begin_ns) / 1e9);
    return -EIO;
}

/* Waits for the end of a worker, at most until the given time. Collects the results of all ended
 * workers. */
static int await_ends(struct conductor *c, uint64_t until_ns)
{
    struct pollfd fds[CHILDREN_MAX];
    for (size_t i = 0; i < c->children_count; i++)
        fds[i] = (struct pollfd){.fd = c->children[i].fd, .events = POLLIN};
    int r = poll(fds, c->children_count, clock_poll_ms(until_ns, clock_now_ns()));
    if (r < 0)
        return errno == EINTR ? 0 : -errno;
    for (size_t i = c->children_count; i-- > 0;) {
        if (!fds[i].revents)
            continue;
        int code = process_reap(c->children[i].pid, clock_now_ns() + NS_PER_S);
        close(c->children[i].fd);
        c->children[i] = c->children[--c->children_count];
        c->has_left = true;
        if (code != 0)
            return complain_of(c, code);
    }
    return 0;
}

static int conduct(struct conductor *c)
{
    int r = look(c);
    while (r == 0) {
        uint64_t now_ns = clock_now_ns(), next_ns = UINT64_MAX;
        if (now_ns > c->deadline_ns)
            return complain_of(c, ETIMEDOUT);
        r = let_come(c, now_ns, &next_ns);
        if (r == 0 && c->children_count == 0 && next_ns == UINT64_MAX)
            break;
        if (r == 0)
            r = await_ends(c, next_ns < c->next_look_ns ? next_ns : c->next_look_ns);
        if (r == 0 && clock_now_ns() >= c->next_look_ns)
            r = look(c);
    }
    return r < 0 ? r : look(c);
}

static void end_children(struct conductor *c)
{
    for (size_t i = 0; i < c->children_count; i++) {
        kill(c->children[i].pid, SIGKILL);
        process_reap(c->children[i].pid, clock_now_ns() + NS_PER_S);
        close(c->children[i].fd);
    }
}

static void sum_up_job(struct conductor *c, size_t index)
{
    struct turn_job *job = &c->turn->jobs[index];
    uint64_t timed_ns = 0;
    for (uint32_t rank = 0; rank < c->turn->plan->jobs[index].workers; rank++) {
        const struct emulated_result *result = result_of(c, index, rank);
        timed_ns += result->timed_ns;
        job->timed_rounds += result->timed_rounds;
        job->checked_rounds += result->checked_rounds;
        job->wrong += result->wrong;
    }
    if (job->timed_rounds)
        job->period_ns = (double)timed_ns / (double)job->timed_rounds;
}

static void sum_up(struct conductor *c)
{
    struct turn *turn = c->turn;
    const struct look *from = &c->first, *to = &c->last;
    double most_s;
    turn->seconds = (double)(to->at_ns - from->at_ns) / 1e9;
    turn->used_s = look_cpu_s(from, to, &most_s);
    if (c->full_last.at_ns > c->full_first.at_ns) {
        from = &c->full_first;
        to = &c->full_last;
    }
    double full_s = (double)(to->at_ns - from->at_ns) / 1e9;
    turn->offered = look_cpu_s(from, to, &most_s) / full_s;
    turn->busiest = most_s / full_s;
    for (size_t i = 0; i < turn->plan->jobs_count; i++)
        sum_up_job(c, i);
}

int turn_run(struct turn *turn)
{
    size_t bytes = sizeof(struct emulated_result) * CHILDREN_MAX;
    struct conductor *c = calloc(1, sizeof *c);
    int r = c ? 0 : -ENOMEM;
    if (r == 0) {
        c->turn = turn;
        c->begin_ns = clock_now_ns();
        c->deadline_ns = c->begin_ns + DEADLINE_NS;
        c->results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        r = c->results == MAP_FAILED ? -errno : conduct(c);
        end_children(c);
    }
    if (r == 0)
        sum_up(c);
    if (c && c->results != MAP_FAILED)
        munmap(c->results, bytes);
    free(c);
    return r;
}
