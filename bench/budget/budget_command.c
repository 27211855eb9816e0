/* `budget`: counts system calls, allocations and wake-ups for each GiB of gradients. Owns a service
 * and one group of workers (a crew) at a time. */
#include "bench/budget/allocations.h"
#include "bench/budget/trace.h"
#include "bench/commands.h"
#include "bench/compare/systems.h"
#include "bench/lib/host.h"

#include "svc/base/err.h"

#include <stdlib.h>
#include <string.h>

#define WORKERS 4
#define WARM_ROUNDS 4

struct budget {
    uint32_t rounds;
    uint64_t tensor_bytes; /* bytes of a tensor; 0: one run with 4 KiB, and one run with 4 MiB */
    uint32_t tensors;      /* number of tensors in a group */
    bool is_json, counts_allocations;
    struct service service;
};

/* Counts for each role (server, worker), over equal numbers of rounds. */
struct counted {
    struct trace_counts calls[TRACE_ROLES];
    uint64_t sleeps[TRACE_ROLES], allocations[TRACE_ROLES];
    bool lacks_allocations; /* whether the allocations of a process are unknown */
};

enum { KEY_ROUNDS = 1000, KEY_BYTES, KEY_TENSORS, KEY_JSON };

static const struct argp_option options[] = {
    {"rounds", KEY_ROUNDS, "N", 0, "number of counted rounds (default 50)"},
    {"bytes", KEY_BYTES, "N", 0, "size of a tensor (default: first 4 KiB, then 4 MiB)"},
    {"tensors", KEY_TENSORS, "N", 0,
     "number of tensors of that size, pushed as one group (default 1)"},
    {"json", KEY_JSON, 0, 0, "a line of JSON for each cell"},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct budget *o = state->input;
    switch (key) {
    case KEY_ROUNDS: o->rounds = (uint32_t)command_number(state, argument, 1, 4000); return 0;
    case KEY_BYTES: o->tensor_bytes = command_number(state, argument, 4, 1 << 30); return 0;
    case KEY_TENSORS: o->tensors = (uint32_t)command_number(state, argument, 1, 100000); return 0;
    case KEY_JSON: o->is_json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int run_rounds(struct crew *crew, uint32_t rounds)
{
    struct segment s = {.rounds = rounds};
    s.round_ns = calloc((size_t)rounds * WORKERS, sizeof *s.round_ns);
    int r = s.round_ns ? crew_run(crew, &s) : -1;
    free(s.round_ns);
    return r == 0 && s.wrong ? -1 : r;
}

static void add_process(pid_t pid, enum trace_role role, int64_t sign, struct counted *counted)
{
    counted->sleeps[role] += (uint64_t)sign * trace_sleeps(pid);
    counted->allocations[role] += (uint64_t)sign * allocations_of(pid);
    /* a process without any allocation was not counted */
    counted->lacks_allocations |= allocations_of(pid) == 0;
}

static void add_all(const struct budget *o, const struct crew *crew, int64_t sign,
                    struct counted *counted)
{
    for (size_t i = 0; i < o->service.aggregators_count; i++)
        add_process(o->service.aggregators[i], TRACE_SERVER, sign, counted);
    for (size_t i = 0; i < crew->children_count; i++)
        add_process(crew->children[i], TRACE_WORKER, sign, counted);
}

/* Counts sleeps and allocations first, because a traced thread sleeps at every call. The counts
 * include a dozen messages between workers and conductor. */
static int count(const struct budget *o, struct crew *crew, struct counted *ret_counted)
{
    struct counted counted = {0};
    struct trace *trace = NULL;
    add_all(o, crew, -1, &counted);
    int r = run_rounds(crew, o->rounds);
    add_all(o, crew, 1, &counted);
    if (r == 0) {
        r = trace_start(o->service.aggregators, o->service.aggregators_count, crew->children,
                        crew->children_count, &trace);
        if (r < 0)
            fprintf(stderr, "gradpool-bench: cannot count system calls: %s\n", err_text(r));
    }
    if (r == 0)
        r = run_rounds(crew, o->rounds);
    trace_stop(trace, counted.calls);
    if (r == 0)
        *ret_counted = counted;
    return r;
}

/* Prints the end of the output line, with or without counts of allocations. */
static void print_allocations(const struct budget *o, const struct counted *c, double gib)
{
    const char *format = o->is_json ? ", \"lane_allocations_per_gib\": %.1f, "
                                      "\"worker_allocations_per_gib\": %.1f"
                                    : " %10.1f %10.1f";
    if (o->counts_allocations && !c->lacks_allocations)
        printf(format, (double)c->allocations[TRACE_SERVER] / gib,
               (double)c->allocations[TRACE_WORKER] / gib);
    puts(o->is_json ? "}" : "");
}

static void print_header(const struct budget *o)
{
    if (o->is_json)
        return;
    printf("%-9s %3s %10s %6s %11s %11s %8s %8s %11s %11s", "per GiB", "N", "bytes", "rounds",
           "lane calls", "w. calls", "lane mem", "w. mem", "lane wakes", "w. wakes");
    puts(o->counts_allocations ? "  lane alloc   w. alloc" : "");
}

static void print(const struct budget *o, const struct crew *crew, uint64_t bytes,
                  const struct counted *c)
{
    const char *format =
        o->is_json
            ? "{\"transport\": \"%s\", \"workers\": %d, \"tensor_bytes\": %llu, \"rounds\": %u, "
              "\"lane_calls_per_gib\": %.0f, \"worker_calls_per_gib\": %.0f, "
              "\"lane_memory_calls_per_gib\": %.1f, \"worker_memory_calls_per_gib\": %.1f, "
              "\"lane_wakes_per_gib\": %.0f, \"worker_wakes_per_gib\": %.0f"
            : "%-9s %3d %10llu %6u %11.0f %11.0f %8.1f %8.1f %11.0f %11.0f";
    double gib = (double)WORKERS * (double)bytes * o->tensors * o->rounds / (double)(1 << 30);
    printf(format, crew->system->transport, WORKERS, (unsigned long long)bytes, o->rounds,
           (double)c->calls[TRACE_SERVER].calls / gib, (double)c->calls[TRACE_WORKER].calls / gib,
           (double)c->calls[TRACE_SERVER].memory_calls / gib,
           (double)c->calls[TRACE_WORKER].memory_calls / gib, (double)c->sleeps[TRACE_SERVER] / gib,
           (double)c->sleeps[TRACE_WORKER] / gib);
    print_allocations(o, c, gib);
    fflush(stdout);
}

static int measure(const struct budget *o, struct crew *crew, uint64_t bytes)
{
    struct counted counted;
    int r = crew_resize(crew, bytes * o->tensors, o->tensors);
    if (r == 0)
        r = run_rounds(crew, WARM_ROUNDS);
    if (r == 0)
        r = count(o, crew, &counted);
    if (r == 0)
        print(o, crew, bytes, &counted);
    return r;
}

static int measure_system(const struct budget *o, const struct system *system)
{
    const uint64_t sizes[] = {o->tensor_bytes ? o->tensor_bytes : 4096, 4 << 20};
    size_t count = o->tensor_bytes ? 1 : 2;
    struct crew crew;
    int r = crew_start(&crew, system, &o->service, WORKERS);
    if (r == 0)
        r = crew_await(&crew);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = measure(o, &crew, sizes[i]);
    crew_end(&crew);
    return r;
}

int budget_command(int argc, char **argv)
{
    struct budget o = {.rounds = 50, .tensors = 1};
    const struct argp argp = {
        options,
        parse,
        NULL,
        "Count system calls, system calls that grow or shrink memory, wake-ups and allocations for "
        "each GiB that 4 workers push: of the lane's process, and of all workers. The command "
        "starts a separate service.",
        NULL,
        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    o.counts_allocations = allocations_counted("budget", argc, argv);
    process_core(0);
    int r = service_start(&o.service);
    if (r == 0)
        print_header(&o);
    for (const struct system *s = systems; r == 0 && s->name; s++)
        if (s->uses_service)
            r = measure_system(&o, s);
    service_stop(&o.service);
    return r < 0 ? 1 : 0;
}
