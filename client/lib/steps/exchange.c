/* Sends the deal to late workers, in rounds with GP_SUM: only the giver pushes words, all other
 * ranks push zeros. If the giver is lost, the sum is 0 on all ranks. */
#include "client/lib/elastic/carry.h"
#include "client/lib/round/push_pull.h"
#include "client/lib/round/wait.h"
#include "client/lib/session/process.h"
#include "client/lib/steps/internal.h"

#include <errno.h>
#include <stdlib.h>

uint32_t carry_giver(const struct deal_record *record)
{
    uint32_t lowest = 0;
    while (lowest < DEAL_RANKS_MAX && !ranks_have(record->holds, lowest))
        lowest++;
    for (uint32_t rank = lowest; rank < DEAL_RANKS_MAX; rank++) {
        if (ranks_have(record->holds, rank) && !ranks_have(record->leaving, rank))
            return rank;
    }
    return lowest;
}

/* Writes the words of the deal at the giver. A giver without memory for the words sends zeros: then
 * the sum is 0, as after the loss of a giver. */
static void exchange_prepare(struct gp_job *job)
{
    struct job_steps *s = job->steps;
    size_t count = s->holds && carry_giver(&s->sum.record) == job->rank ? carry_words(s->deal) : 0;
    s->carried_total = s->carried_count = 0;
    if (count == 0 || count > CARRY_WORDS_MAX || !(s->carried = calloc(count, sizeof *s->carried)))
        return;
    carry_write(s->deal, s->carried);
}

static void exchange_fill(struct job_steps *s)
{
    memset(s->chunk_sent, 0, sizeof s->chunk_sent);
    if (!s->holds || !s->carried)
        return;
    size_t left = (size_t)s->carried[CARRY_COUNT] - s->carried_count;
    size_t some = left < STEPS_CARRY_WORDS ? left : STEPS_CARRY_WORDS;
    memcpy(s->chunk_sent, s->carried + s->carried_count, some * sizeof s->chunk_sent[0]);
}

/* Handles the first chunk, which contains the number of words. Returns 1; 0: no giver has sent
 * words; or -EPROTO. */
static int exchange_begin(struct job_steps *s)
{
    uint64_t total = s->chunk_heard[CARRY_COUNT];
    if (s->chunk_heard[CARRY_MAGIC] == 0)
        return 0;
    if (s->chunk_heard[CARRY_MAGIC] != CARRY_MAGIC_VALUE || total < CARRY_HEAD_WORDS ||
        total > CARRY_WORDS_MAX)
        return client_error(-EPROTO, "the deal: a rank sent bytes that are no state of a deal; use "
                                     "one version of the library on all ranks");
    s->carried_total = (size_t)total;
    if (!s->holds)
        s->carried = calloc(s->carried_total, sizeof *s->carried);
    return 1;
}

static void exchange_hear(struct job_steps *s)
{
    size_t left = s->carried_total - s->carried_count;
    size_t some = left < STEPS_CARRY_WORDS ? left : STEPS_CARRY_WORDS;
    if (!s->holds && s->carried)
        memcpy(s->carried + s->carried_count, s->chunk_heard, some * sizeof s->chunk_heard[0]);
    s->carried_count += some;
}

/* Makes one round of the hand-over. Returns 1; 0: the giver was lost before the first round; or an
 * error. */
static int exchange_chunk(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns)
{
    struct job_steps *s = job->steps;
    int error = 0;
    if (!s->request) {
        exchange_fill(s);
        error = push_words(s->carry, s->chunk_sent, s->chunk_heard, false, &s->request);
    }
    if (error == 0)
        error = wait_locked(s->request, deadline_ns, timeout_ns);
    if (error != -ETIMEDOUT)
        s->request = NULL;
    if (error < 0)
        return error;
    int has_words = s->carried_total > 0 ? 1 : exchange_begin(s);
    if (has_words > 0)
        exchange_hear(s);
    return has_words;
}

int carry_exchange(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns)
{
    struct job_steps *s = job->steps;
    int result;
    if (s->carried_total == 0 && !s->request)
        exchange_prepare(job);
    do {
        result = exchange_chunk(job, deadline_ns, timeout_ns);
    } while (result > 0 && s->carried_count < s->carried_total);
    return result;
}
