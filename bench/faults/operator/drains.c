/* Alternately drains an aggregator and undoes the drain. Owns the running command. A failed command
 * is no fault, because a strike may have hit its process. */
#include "bench/faults/operator/drains.h"

#include "bench/savings/look.h"

#include <stdio.h>
#include <stdlib.h>

#define EXIT_NOTHING 3 /* exit code if the aggregator does not exist; its drain has then ended */

static void order(struct drains *d, bool undoes)
{
    char number[16];
    const char *const arguments[] = {"drain", "aggregator", number, undoes ? "--undo" : NULL, NULL};
    snprintf(number, sizeof number, "%u", d->aggregator);
    d->undoes = undoes;
    errand_begin(&d->errand, arguments);
}

/* Handles the end of a command. A failed drain is undone as well, because the failed command may
 * have had an effect. */
static void take(struct drains *d, int code)
{
    if (code != 0) {
        fprintf(stderr, "# %s aggregator %u: %s\n", d->undoes ? "undo of the drain of" : "drain of",
                d->aggregator, d->errand.text);
        d->refused++;
    } else if (d->undoes) {
        d->undone++;
    } else {
        d->done++;
    }
    if ((code == 0 && d->undoes) || code == EXIT_NOTHING)
        d->aggregator = 0;
}

static uint32_t some_aggregator(const struct drains *d, uint32_t chance)
{
    struct look *look = calloc(1, sizeof *look);
    uint32_t number = 0;
    if (look && look_at_lanes(d->errand.service, look) == 0)
        number = look->lanes[chance % look->lanes_count].aggregator;
    free(look);
    return number;
}

void drains_step(struct drains *d, uint32_t chance)
{
    int code = errand_end(&d->errand, false);
    if (code == ERRAND_RUNS)
        return;
    if (code >= 0)
        take(d, code);
    bool undoes = d->aggregator > 0;
    if (!undoes)
        d->aggregator = some_aggregator(d, chance);
    if (d->aggregator > 0)
        order(d, undoes);
}

void drains_end(struct drains *d)
{
    int code = errand_end(&d->errand, true);
    if (code >= 0)
        take(d, code);
}
