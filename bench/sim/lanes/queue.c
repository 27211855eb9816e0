/* Owns the state of one event simulation: jobs, their streams of pieces to each lane, the lanes,
 * and a heap of the lanes' next events. Must never use a formula of loss, because formulas are
 * compared with this simulation.
 *
 * A lane that has work of only one job serves this job without events until a piece of another job
 * arrives. The lane then stops at the end of the chunk. So events happen only when a lane has to
 * choose a job. */
#include "bench/sim/lanes/queue.h"

#include "bench/sim/chance.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define FACTOR_MIN 0.05 /* no worker is faster than this part of the usual step time */
#define PIECE_NS_MIN 1
#define NOBODY UINT32_MAX

/* The pieces of one job on one lane, in the order of their arrival. */
struct stream {
    uint32_t job, lane, next_on_lane;
    uint32_t first, count; /* first piece in run.order, and number of pieces */
    uint32_t arrived;
    double backlog_ns;
};

struct run_job {
    uint32_t first_stream, streams_count, streams_left;
    uint32_t first_piece;
    uint64_t round;
    double counted_from_ns;
};

struct run_lane {
    uint32_t first_stream, serving;
    uint32_t heap_at;
    double due_ns;     /* time of the lane's next event; INFINITY: none */
    double started_ns; /* start of the present work */
    double arrival_ns; /* next known arrival of a piece */
};

/* The time is stored beside the lane, so that comparisons do not read lanes. */
struct heap_entry {
    double due_ns;
    uint32_t lane;
};

struct run {
    const struct queue_job *jobs;
    size_t jobs_count, lanes_count, streams_count, pieces_count;
    double chunk_ns, end_ns;
    uint64_t warm_rounds;
    struct queue_outcome *outcomes;
    struct run_job *states;
    struct run_lane *lanes;
    struct stream *streams;
    uint32_t *order;     /* positions of the job's pieces, sorted by job, lane, arrival */
    double *arrivals_ns; /* arrival of each piece, in the order of the jobs' pieces */
    struct heap_entry *heap;
};

/* Returns the larger value. fmax() and fmin() would be function calls, because they handle NaN, and
 * no value here is NaN. */
static double later(double a, double b) { return a > b ? a : b; }

static double sooner(double a, double b) { return a < b ? a : b; }

/* --- one round of one job --- */

/* Returns the step time of the slowest worker in the round, divided by the usual step time. */
static double draw_factor(const struct queue_job *job, uint64_t round)
{
    uint64_t state = chance_hash(job->seed, round);
    double most = FACTOR_MIN;

    if (job->jitter <= 0)
        return 1;
    for (uint32_t worker = 0; worker < job->workers; worker++)
        most = later(most, 1 + job->jitter * chance_normal(&state));
    return most;
}

static void draw_arrivals(const struct queue_job *job, uint64_t round, double start_ns,
                          double *ret_arrivals_ns)
{
    double factor = draw_factor(job, round), line_ns = start_ns;

    for (size_t i = 0; i < job->pieces_count; i++) {
        const struct queue_piece *piece = &job->pieces[i];
        double ready_ns = start_ns + factor * (job->forward_ns + job->backward_ns * piece->ready);

        line_ns = later(line_ns, ready_ns) + piece->wire_ns;
        ret_arrivals_ns[i] = line_ns;
    }
    if (job->pieces_count == 0)
        return;
    /* a round lasts at least as long as its computing, even if nothing is left to send */
    size_t last = job->pieces_count - 1;
    ret_arrivals_ns[last] =
        later(ret_arrivals_ns[last], start_ns + factor * (job->forward_ns + job->backward_ns));
}

/* Returns the work of a piece. The result is positive, because a piece without work would never be
 * finished. */
static double work_ns(const struct queue_piece *piece)
{
    return later(piece->lane_ns, PIECE_NS_MIN);
}

/* --- alone --- */

static uint32_t lanes_of(const struct queue_job *job)
{
    uint32_t most = 0;

    for (size_t i = 0; i < job->pieces_count; i++)
        if (job->pieces[i].lane >= most)
            most = job->pieces[i].lane + 1;
    return most;
}

static double alone_round_ns(const struct queue_job *job, uint64_t round, double *arrivals_ns,
                             double *lanes_ns, uint32_t lanes)
{
    double end_ns = 0;

    for (uint32_t i = 0; i < lanes; i++)
        lanes_ns[i] = 0;
    draw_arrivals(job, round, 0, arrivals_ns);
    for (size_t i = 0; i < job->pieces_count; i++) {
        double *free_ns = &lanes_ns[job->pieces[i].lane];

        *free_ns = later(*free_ns, arrivals_ns[i]) + work_ns(&job->pieces[i]);
        end_ns = later(end_ns, *free_ns);
    }
    return end_ns;
}

int queue_alone(const struct queue_job *job, uint64_t first, uint64_t count, double *ret_elapsed_ns,
                double *ret_deviation_ns)
{
    uint32_t lanes = lanes_of(job);
    double *arrivals_ns = calloc(job->pieces_count + 1, sizeof(*arrivals_ns));
    double *lanes_ns = calloc((size_t)lanes + 1, sizeof(*lanes_ns));
    double sum_ns = 0, squares = 0;
    int r = arrivals_ns && lanes_ns ? 0 : -ENOMEM;

    for (uint64_t i = 0; i < count && r == 0; i++) {
        double ns = alone_round_ns(job, first + i, arrivals_ns, lanes_ns, lanes);

        sum_ns += ns;
        squares += ns * ns;
    }
    if (r == 0) {
        double mean_ns = count ? sum_ns / (double)count : 0;

        *ret_elapsed_ns = sum_ns;
        if (ret_deviation_ns)
            *ret_deviation_ns =
                count ? sqrt(later(0, squares / (double)count - mean_ns * mean_ns)) : 0;
    }
    free(arrivals_ns);
    free(lanes_ns);
    return r;
}

/* A lane's work in one round. */
struct lane_round {
    double begun_ns, free_ns, burst_ns;
};

static void add_ending(const struct queue_job *job, const double *arrivals_ns,
                       struct lane_round *rounds, uint32_t lanes, struct queue_ending *sums)
{
    for (uint32_t i = 0; i < lanes; i++)
        rounds[i] = (struct lane_round){.begun_ns = INFINITY};
    for (size_t i = 0; i < job->pieces_count; i++) {
        struct lane_round *lane = &rounds[job->pieces[i].lane];

        lane->begun_ns = sooner(lane->begun_ns, arrivals_ns[i]);
        if (arrivals_ns[i] > lane->free_ns)
            lane->burst_ns = 0;
        lane->burst_ns += work_ns(&job->pieces[i]);
        lane->free_ns = later(lane->free_ns, arrivals_ns[i]) + work_ns(&job->pieces[i]);
    }
    for (uint32_t i = 0; i < lanes; i++) {
        sums[i].span_ns +=
            isfinite(rounds[i].begun_ns) ? rounds[i].free_ns - rounds[i].begun_ns : 0;
        sums[i].burst_ns += rounds[i].burst_ns;
    }
}

int queue_endings(const struct queue_job *job, uint64_t count, struct queue_ending *ret_endings)
{
    uint32_t lanes = lanes_of(job);
    double *arrivals_ns = calloc(job->pieces_count + 1, sizeof(*arrivals_ns));
    struct lane_round *rounds = calloc((size_t)lanes + 1, sizeof(*rounds));
    int r = arrivals_ns && rounds ? 0 : -ENOMEM;

    for (uint32_t i = 0; i < lanes && r == 0; i++)
        ret_endings[i] = (struct queue_ending){0};
    for (uint64_t i = 0; i < count && r == 0; i++) {
        draw_arrivals(job, i, 0, arrivals_ns);
        add_ending(job, arrivals_ns, rounds, lanes, ret_endings);
    }
    for (uint32_t i = 0; i < lanes && r == 0; i++) {
        ret_endings[i].span_ns /= (double)count;
        ret_endings[i].burst_ns /= (double)count;
    }
    free(arrivals_ns);
    free(rounds);
    return r;
}

/* --- the heap: lanes by their next event --- */

static void heap_set(struct run *run, uint32_t at, struct heap_entry entry)
{
    run->heap[at] = entry;
    run->lanes[entry.lane].heap_at = at;
}

/* Orders equal times by lane, so that the order does not depend on earlier events. */
static bool is_sooner(const struct heap_entry *a, const struct heap_entry *b)
{
    return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->lane < b->lane);
}

static void sift_up(struct run *run, uint32_t at, struct heap_entry entry)
{
    for (; at > 0 && is_sooner(&entry, &run->heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_set(run, at, run->heap[(at - 1) / 2]);
    heap_set(run, at, entry);
}

static void sift_down(struct run *run, uint32_t at, struct heap_entry entry)
{
    uint32_t count = (uint32_t)run->lanes_count;

    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_sooner(&run->heap[child + 1], &run->heap[child]))
            child++;
        if (!is_sooner(&run->heap[child], &entry))
            break;
        heap_set(run, at, run->heap[child]);
        at = child;
    }
    heap_set(run, at, entry);
}

static void set_due(struct run *run, uint32_t lane, double due_ns)
{
    double before_ns = run->lanes[lane].due_ns;
    struct heap_entry entry = {due_ns, lane};

    run->lanes[lane].due_ns = due_ns;
    if (due_ns < before_ns)
        sift_up(run, run->lanes[lane].heap_at, entry);
    else if (due_ns > before_ns)
        sift_down(run, run->lanes[lane].heap_at, entry);
}

/* --- lanes --- */

static double next_arrival_ns(const struct run *run, const struct stream *stream)
{
    const struct run_job *state = &run->states[stream->job];

    if (stream->arrived == stream->count)
        return INFINITY;
    return run->arrivals_ns[state->first_piece + run->order[stream->first + stream->arrived]];
}

static double piece_ns(const struct run *run, const struct stream *stream, uint32_t at)
{
    return work_ns(&run->jobs[stream->job].pieces[run->order[stream->first + at]]);
}

/* Admits all pieces that have arrived, and stores the time of the next arrival. */
static void admit(struct run *run, struct run_lane *lane, double now_ns)
{
    double next_ns = INFINITY;

    if (lane->arrival_ns > now_ns)
        return;
    for (uint32_t at = lane->first_stream; at != NOBODY; at = run->streams[at].next_on_lane) {
        struct stream *stream = &run->streams[at];

        while (next_arrival_ns(run, stream) <= now_ns) {
            stream->backlog_ns += piece_ns(run, stream, stream->arrived);
            stream->arrived++;
        }
        next_ns = sooner(next_ns, next_arrival_ns(run, stream));
    }
    lane->arrival_ns = next_ns;
}

/* Chooses the next job with work after `last`, in cyclic order. Chooses `last` itself only if no
 * other job has work. */
static uint32_t choose(const struct run *run, const struct run_lane *lane, uint32_t last)
{
    uint32_t first = NOBODY;
    bool is_behind = last == NOBODY;

    for (uint32_t at = lane->first_stream; at != NOBODY; at = run->streams[at].next_on_lane) {
        bool has_work = run->streams[at].backlog_ns > 0;

        if (has_work && is_behind)
            return at;
        if (has_work && first == NOBODY)
            first = at;
        is_behind |= at == last;
    }
    return first;
}

static bool has_rivals(const struct run *run, const struct run_lane *lane, uint32_t chosen)
{
    for (uint32_t at = lane->first_stream; at != NOBODY; at = run->streams[at].next_on_lane)
        if (at != chosen && run->streams[at].backlog_ns > 0)
            return true;
    return false;
}

/* Returns the end of the chunk in which a piece arrives, or the end of all work. */
static double stop_ns(const struct run *run, const struct run_lane *lane, double arrival_ns)
{
    double end_ns = lane->started_ns + run->streams[lane->serving].backlog_ns;
    double chunks = floor((arrival_ns - lane->started_ns) / run->chunk_ns) + 1;

    return isfinite(arrival_ns) ? sooner(end_ns, lane->started_ns + chunks * run->chunk_ns)
                                : end_ns;
}

static double others_arrival_ns(const struct run *run, const struct run_lane *lane)
{
    double next_ns = INFINITY;

    for (uint32_t at = lane->first_stream; at != NOBODY; at = run->streams[at].next_on_lane)
        if (at != lane->serving)
            next_ns = sooner(next_ns, next_arrival_ns(run, &run->streams[at]));
    return next_ns;
}

/* Serves one job without interruption until a piece of another job arrives. The lane never serves
 * this piece before its arrival. */
static double serve_alone(struct run *run, struct run_lane *lane)
{
    struct stream *stream = &run->streams[lane->serving];
    double other_ns = others_arrival_ns(run, lane), own_ns = next_arrival_ns(run, stream);

    while (own_ns < other_ns && own_ns <= lane->started_ns + stream->backlog_ns) {
        stream->backlog_ns += piece_ns(run, stream, stream->arrived++);
        own_ns = next_arrival_ns(run, stream);
    }
    lane->arrival_ns = sooner(own_ns, other_ns);
    return stop_ns(run, lane, other_ns);
}

static void serve(struct run *run, uint32_t id, double now_ns, uint32_t last)
{
    struct run_lane *lane = &run->lanes[id];

    lane->serving = choose(run, lane, last);
    lane->started_ns = now_ns;
    if (lane->serving == NOBODY)
        set_due(run, id, lane->arrival_ns);
    else if (has_rivals(run, lane, lane->serving))
        set_due(run, id, stop_ns(run, lane, now_ns));
    else
        set_due(run, id, serve_alone(run, lane));
}

/* Stores the time at which a piece will arrive at the lane. */
static void announce(struct run *run, uint32_t id, double arrival_ns)
{
    struct run_lane *lane = &run->lanes[id];

    lane->arrival_ns = sooner(lane->arrival_ns, arrival_ns);
    if (lane->serving == NOBODY)
        set_due(run, id, sooner(lane->due_ns, arrival_ns));
    else
        set_due(run, id, sooner(lane->due_ns, stop_ns(run, lane, arrival_ns)));
}

/* --- rounds --- */

static void start_round(struct run *run, uint32_t job, double now_ns)
{
    struct run_job *state = &run->states[job];

    draw_arrivals(&run->jobs[job], state->round, now_ns, run->arrivals_ns + state->first_piece);
    state->streams_left = state->streams_count;
    for (uint32_t i = 0; i < state->streams_count; i++) {
        struct stream *stream = &run->streams[state->first_stream + i];

        stream->arrived = 0;
        announce(run, stream->lane, next_arrival_ns(run, stream));
    }
}

static void end_round(struct run *run, uint32_t job, double now_ns)
{
    struct run_job *state = &run->states[job];
    struct queue_outcome *outcome = &run->outcomes[job];

    state->round++;
    if (state->round == run->warm_rounds)
        state->counted_from_ns = now_ns;
    if (state->round > run->warm_rounds) {
        outcome->count++;
        outcome->elapsed_ns = now_ns - state->counted_from_ns;
    }
    start_round(run, job, now_ns);
}

static void finish_work(struct run *run, struct run_lane *lane, double now_ns)
{
    struct stream *stream = &run->streams[lane->serving];
    double left_ns = stream->backlog_ns - (now_ns - lane->started_ns);

    /* less than a thousandth of a ns is rounding error of the sums */
    stream->backlog_ns = left_ns > 1e-3 ? left_ns : 0;
    lane->serving = NOBODY;
    if (stream->backlog_ns > 0 || stream->arrived < stream->count)
        return;
    run->states[stream->job].streams_left--;
    if (run->states[stream->job].streams_left == 0)
        end_round(run, stream->job, now_ns);
}

static void turn(struct run *run, uint32_t id)
{
    struct run_lane *lane = &run->lanes[id];
    double now_ns = lane->due_ns;
    uint32_t last = lane->serving;

    admit(run, lane, now_ns);
    if (last != NOBODY)
        finish_work(run, lane, now_ns);
    serve(run, id, now_ns, last);
}

/* --- setting up --- */

static int compare_pieces(const void *a, const void *b, void *context)
{
    const struct queue_piece *pieces = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    if (pieces[x].lane != pieces[y].lane)
        return pieces[x].lane < pieces[y].lane ? -1 : 1;
    return (x > y) - (x < y);
}

/* Sorts the job's pieces by lane and makes one stream for each lane. */
static void add_streams(struct run *run, uint32_t job, uint32_t first_piece)
{
    const struct queue_job *input = &run->jobs[job];
    struct run_job *state = &run->states[job];
    uint32_t *order = run->order + first_piece;

    *state =
        (struct run_job){.first_piece = first_piece, .first_stream = (uint32_t)run->streams_count};
    for (uint32_t i = 0; i < input->pieces_count; i++)
        order[i] = i;
    qsort_r(order, input->pieces_count, sizeof(*order), compare_pieces, (void *)input->pieces);
    for (uint32_t i = 0; i < input->pieces_count; i++) {
        uint32_t lane = input->pieces[order[i]].lane;

        if (i == 0 || lane != input->pieces[order[i - 1]].lane)
            run->streams[run->streams_count++] =
                (struct stream){.job = job, .lane = lane, .first = first_piece + i};
        run->streams[run->streams_count - 1].count++;
    }
    state->streams_count = (uint32_t)run->streams_count - state->first_stream;
}

static void link_streams(struct run *run)
{
    for (size_t at = run->streams_count; at-- > 0;) {
        struct run_lane *lane = &run->lanes[run->streams[at].lane];

        run->streams[at].next_on_lane = lane->first_stream;
        lane->first_stream = (uint32_t)at;
    }
}

static int run_init(struct run *run)
{
    uint32_t first_piece = 0;

    for (size_t i = 0; i < run->jobs_count; i++) {
        run->pieces_count += run->jobs[i].pieces_count;
        if (lanes_of(&run->jobs[i]) > run->lanes_count)
            run->lanes_count = lanes_of(&run->jobs[i]);
    }
    run->states = calloc(run->jobs_count + 1, sizeof(*run->states));
    run->lanes = calloc(run->lanes_count + 1, sizeof(*run->lanes));
    run->heap = calloc(run->lanes_count + 1, sizeof(*run->heap));
    run->streams = calloc(run->pieces_count + 1, sizeof(*run->streams));
    run->order = calloc(run->pieces_count + 1, sizeof(*run->order));
    run->arrivals_ns = calloc(run->pieces_count + 1, sizeof(*run->arrivals_ns));
    if (!run->states || !run->lanes || !run->heap || !run->streams || !run->order ||
        !run->arrivals_ns)
        return -ENOMEM;
    for (uint32_t i = 0; i < run->lanes_count; i++) {
        run->lanes[i] = (struct run_lane){
            .first_stream = NOBODY, .serving = NOBODY, .due_ns = INFINITY, .arrival_ns = INFINITY};
        heap_set(run, i, (struct heap_entry){INFINITY, i});
    }
    for (uint32_t i = 0; i < run->jobs_count; i++) {
        add_streams(run, i, first_piece);
        first_piece += (uint32_t)run->jobs[i].pieces_count;
    }
    link_streams(run);
    return 0;
}

static void run_fini(struct run *run)
{
    free(run->states);
    free(run->lanes);
    free(run->heap);
    free(run->streams);
    free(run->order);
    free(run->arrivals_ns);
}

static void run_until_end(struct run *run)
{
    for (uint32_t i = 0; i < run->jobs_count; i++) {
        run->outcomes[i] = (struct queue_outcome){.first = run->warm_rounds};
        /* without warm-up rounds the first round counts */
        run->states[i].counted_from_ns = run->jobs[i].start_ns;
        start_round(run, i, run->jobs[i].start_ns);
    }
    while (run->lanes_count > 0 && run->heap[0].due_ns < run->end_ns)
        turn(run, run->heap[0].lane);
}

int queue_run(const struct queue_job *jobs, size_t count, double chunk_ns, double end_ns,
              uint64_t warm_rounds, struct queue_outcome *ret_outcomes)
{
    struct run run = {.jobs = jobs,
                      .jobs_count = count,
                      .chunk_ns = chunk_ns,
                      .end_ns = end_ns,
                      .warm_rounds = warm_rounds,
                      .outcomes = ret_outcomes};
    int r = run_init(&run);

    if (r == 0)
        run_until_end(&run);
    run_fini(&run);
    return r;
}
