/* Measures calls and judges their errors. The text of an error must never excuse a late call. */
#include "bench/faults/worker/timed.h"

#include "svc/base/clock.h"

#include <stdio.h>
#include <string.h>

/* a call that ends more than this time after its deadline counts as a hang */
#define LATE_NS (2 * NS_PER_S)

bool call_names_a_cause(const char *text)
{
    static const char *const words[] = {"rank",        "aggregator", "lane",
                                        "coordinator", "service",    "gradpool serve"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

struct call call_begin(struct victim_board *board, const char *name, uint64_t deadline_ns)
{
    struct call call = {board, name, clock_now_ns(), deadline_ns + LATE_NS,
                        atomic_load(&board->stops)};
    board->patience_ns = call.patience_ns;
    return call;
}

void call_time(const struct call *c, uint64_t ended_ns)
{
    uint64_t took_ns = ended_ns - c->began_ns;
    if (took_ns <= c->patience_ns || atomic_load(&c->board->stops) != c->stops)
        return;
    fprintf(stderr, "# %s took %.3f s, its deadline is %.3f s   <- a hang\n", c->name,
            (double)took_ns / 1e9, (double)(c->patience_ns - LATE_NS) / 1e9);
    c->board->hangs++;
}

int call_end(const struct call *c, int code)
{
    call_time(c, clock_now_ns());
    return code;
}

void call_judge(struct victim_board *board, const char *name, int code, const char *text)
{
    if (code >= 0 || call_names_a_cause(text))
        return;
    fprintf(stderr, "# %s failed with %d: %s   <- names no cause\n", name, code, text);
    board->unnamed++;
}
