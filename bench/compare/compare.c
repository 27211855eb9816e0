/* Owns the order of a comparison. All systems with the same number of workers are started together.
 * One system runs while the others sleep, so all systems of a cell meet the same state of the
 * machine. */
#include "bench/compare/compare.h"

#include "bench/compare/seat.h"
#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define WARM_ROUNDS_MAX 8
#define WARM_BYTES ((uint64_t)4 << 20)
#define TURN_ROUNDS_MIN 2
#define PAUSE_US 1000

struct comparison {
    const struct compare_options *options;
    struct service service;
    struct crew crews[SYSTEMS_MAX];
    struct cell cells[SYSTEMS_MAX];
    uint32_t turn_rounds[SYSTEMS_MAX];
    uint32_t pauses[CREW_WORKERS_MAX];
    size_t count;
    bool has_failed;
};

static volatile sig_atomic_t is_interrupted;

static void interrupt(int signal) { is_interrupted = 1; }

static bool is_chosen(const struct compare_options *o, const struct system *system)
{
    size_t length = strlen(system->name);
    for (const char *at = o->systems; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, system->name, length) == 0 && (at[length] == ',' || at[length] == 0))
            return true;
    }
    return !o->systems;
}

/* Drops a system that failed. The run fails if the system uses the service or a server of the
 * bench, or if its workers were already connected. Other systems may be absent or broken on this
 * host. */
static void drop(struct comparison *c, size_t i)
{
    const struct system *system = c->crews[i].system;
    c->has_failed |= system->uses_service || system->has_server_seat || c->crews[i].is_up;
    crew_end(&c->crews[i]);
}

static void start_crews(struct comparison *c, uint32_t workers)
{
    c->count = 0;
    for (const struct system *s = systems; s->name; s++) {
        if (!is_chosen(c->options, s))
            continue;
        size_t i = c->count++;
        if (crew_start(&c->crews[i], s, &c->service, workers) < 0)
            drop(c, i);
    }
    for (size_t i = 0; i < c->count; i++)
        if (c->crews[i].system && crew_await(&c->crews[i]) < 0)
            drop(c, i);
}

static int add(struct cell *cell, const struct segment *s)
{
    size_t count = (size_t)s->rounds * cell->workers;
    uint64_t *all = realloc(cell->round_ns, (cell->round_ns_count + count) * sizeof *all);
    if (!all)
        return -ENOMEM;
    memcpy(all + cell->round_ns_count, s->round_ns, count * sizeof *all);
    cell->round_ns = all;
    cell->round_ns_count += count;
    cell->rounds += s->rounds;
    cell->worker_cpu_ns += s->worker_cpu_ns;
    cell->server_cpu_ns += s->server_cpu_ns;
    cell->elapsed_ns += s->elapsed_ns;
    return 0;
}

/* Runs one turn. `counts`: whether the times of the turn are recorded. Wrong elements are always
 * recorded. */
static int take_turn(struct comparison *c, size_t i, uint32_t rounds, bool counts,
                     uint64_t *ret_round_ns)
{
    struct crew *crew = &c->crews[i];
    struct segment s = {.rounds = rounds, .pause_us = c->pauses};
    s.round_ns = calloc((size_t)rounds * crew->workers, sizeof *s.round_ns);
    int r = s.round_ns ? crew_run(crew, &s) : -ENOMEM;
    if (r == 0)
        c->cells[i].wrong += s.wrong;
    if (r == 0 && counts)
        r = add(&c->cells[i], &s);
    if (r == 0)
        *ret_round_ns = s.elapsed_ns / rounds;
    free(s.round_ns);
    return r;
}

/* Runs the system so that all its memory is accessed and the caches are filled, and measures the
 * length of a round. */
static int warm_up(struct comparison *c, size_t i)
{
    const struct compare_options *o = c->options;
    const struct compare_load *load = &c->cells[i].load;
    uint64_t bytes = load->tensor_bytes * load->tensors, round_ns = 0;
    uint32_t rounds = bytes < WARM_BYTES ? WARM_ROUNDS_MAX : 1;
    int r = crew_resize(&c->crews[i], bytes, load->tensors);
    for (int turn = 0; r == 0 && turn < 2; turn++)
        r = take_turn(c, i, rounds, false, &round_ns);
    uint64_t fit = o->cell_ns / o->passes / (round_ns ? round_ns : 1);
    uint32_t most = crew_rounds_max(&c->crews[i]);
    c->turn_rounds[i] = fit < TURN_ROUNDS_MIN ? TURN_ROUNDS_MIN : fit > most ? most : (uint32_t)fit;
    return r;
}

static bool takes_part(const struct comparison *c, size_t i)
{
    const struct system *system = c->crews[i].system;
    return system && !is_interrupted && (c->cells[i].load.tensors == 1 || system->takes_groups);
}

static void measure(struct comparison *c, uint32_t workers, const struct compare_load *load)
{
    uint64_t round_ns;
    for (size_t i = 0; i < c->count; i++) {
        c->cells[i] = (struct cell){c->crews[i].system, workers, *load};
        if (takes_part(c, i) && warm_up(c, i) < 0)
            drop(c, i);
    }
    for (uint32_t pass = 0; pass < c->options->passes; pass++)
        for (size_t i = 0; i < c->count; i++)
            if (takes_part(c, i) && take_turn(c, i, c->turn_rounds[i], true, &round_ns) < 0)
                drop(c, i);
}

static void report(struct comparison *c)
{
    struct cell done[SYSTEMS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) {
        c->has_failed |= c->cells[i].wrong > 0;
        if (c->crews[i].system && c->cells[i].rounds)
            done[count++] = c->cells[i];
    }
    compare_report(c->options, done, count);
    for (size_t i = 0; i < c->count; i++)
        free(c->cells[i].round_ns);
}

static void compare_workers(struct comparison *c, uint32_t workers)
{
    start_crews(c, workers);
    const struct compare_load *load = c->options->loads;
    for (; load->tensor_bytes && !is_interrupted; load++) {
        measure(c, workers, load);
        report(c);
    }
    for (size_t i = 0; i < c->count; i++)
        if (c->crews[i].system)
            crew_end(&c->crews[i]);
}

static void prepare(struct comparison *c, const struct compare_options *options)
{
    const struct sigaction action = {.sa_handler = interrupt}; /* a signal ends waits with EINTR */
    c->options = options;
    for (uint32_t rank = 0; rank < CREW_WORKERS_MAX && options->slow_rank != UINT32_MAX; rank++)
        c->pauses[rank] = rank == options->slow_rank ? 10 * PAUSE_US : PAUSE_US;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    process_core(0);
}

int compare_run(const struct compare_options *options)
{
    struct comparison *c = calloc(1, sizeof *c);
    if (!c)
        return 1;
    prepare(c, options);
    bool needs_service = !options->systems || strstr(options->systems, "gradpool");
    c->has_failed = needs_service && service_start(&c->service) < 0;
    if (!c->has_failed)
        compare_report_start(options);
    for (const uint32_t *workers = options->workers; *workers && !c->has_failed && !is_interrupted;
         workers++)
        compare_workers(c, *workers);
    service_stop(&c->service);
    int code = is_interrupted ? 130 : c->has_failed;
    free(c);
    return code;
}
