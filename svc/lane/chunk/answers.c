/* Some pieces store their newest result for late ranks. The late ranks receive this result while
 * further rounds are computed. Such a piece has two areas: a round writes to one, while late ranks
 * receive the result in the other. An answer whose last chunk is posted needs no area, because the
 * chunk is in the slot of the worker. Such an answer is never ended early. RULES.md: A16, A88. */
#include "svc/lane/chunk/answers.h"

#include "svc/base/clock.h"
#include "svc/lane/piece/kept.h"
#include "svc/lane/worker/serving.h"

/* Time without progress after which an answer may lose its area to a later answer. */
#define PATIENCE_NS (100 * NS_PER_MS)

static struct serving *answer_to(const struct rank *rank)
{
    return &rank->piece->job->servings->of[rank->worker->number];
}

/* Returns whether chunks of the rank's answer will be read from the result. */
static bool answer_reads(const struct rank *rank, const char *result)
{
    const struct serving *s = answer_to(rank);
    bool is_sent = s->is_posted && s->is_last;
    return s->rank == rank && s->result == result && !is_sent;
}

/* Returns the time of the last progress of any answer that reads the result; 0: no answer reads the
 * result. */
static uint64_t answers_moved_ns(const struct piece *p, const char *result)
{
    uint64_t moved_ns = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        uint64_t of_rank_ns = answer_to(&p->ranks[i])->moved_ns;
        if (answer_reads(&p->ranks[i], result) && of_rank_ns > moved_ns)
            moved_ns = of_rank_ns;
    }
    return moved_ns;
}

/* Returns whether an answer reads the newest result, or a late rank waits for this result. */
static bool answers_need_newest(const struct piece *p, const char *newest)
{
    for (uint32_t i = 0; newest && i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        bool waits = rank->late && rank->late->round < p->round && answer_to(rank)->rank != rank;
        if (waits || answer_reads(rank, newest))
            return true;
    }
    return false;
}

static void answers_end_from(const struct piece *p, const char *result)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (answer_reads(&p->ranks[i], result))
            serving_end(answer_to(&p->ranks[i]));
    }
}

/* If answers need both results, the answers from the older result continue while they make
 * progress, so that every running rank receives a whole result in the end. */
void answers_make_room(struct piece *p)
{
    if (!kept_is_answer(p))
        return;
    bool needs_newest = p->late > 0 && answers_need_newest(p, kept_newest(p));
    uint64_t moved_ns = needs_newest ? answers_moved_ns(p, kept_other(p)) : 0;
    bool are_both_in_use = moved_ns > 0 && moved_ns + PATIENCE_NS > p->job->lane->now_ns;
    p->kept_use &= KEPT_SECOND;
    if (needs_newest && !are_both_in_use)
        p->kept_use = (p->kept_use ^ KEPT_SECOND) | KEPT_BOTH;
    if (p->late > 0)
        answers_end_from(p, kept_result(p, p->round));
}

void answers_end(struct piece *p)
{
    if (!kept_is_answer(p))
        return;
    answers_end_from(p, kept_result(p, p->round));
    answers_end_from(p, kept_other(p));
}
