/* Owns struct closing: the state of the rule, and the time of its next decision. The rule receives
 * only events on this lane, so on a new owner of the piece the rule measures the times of all ranks
 * again. The first round includes the start of the workers, so its times are dropped. RULES.md:
 * A96; packer/backup/README.md: BK1 to BK12. */
#include "svc/lane/piece/closing.h"

#include "packer/backup/backup.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/piece/waits.h"

#include <errno.h>
#include <math.h>

struct closing {
    struct piece *piece;
    struct lane_wait wait; /* wait for the next decision of the rule */
    struct backup *backup;
    bool is_warm;     /* this lane has closed a round */
    bool is_measured; /* the sums of the last closed round are known */
    uint8_t reason;
    const uint32_t *go_on; /* ranks from which the last decision requests another gradient */
    size_t go_on_count;
    uint32_t inputs;   /* number of gradients of the last closed round */
    double loss, rate; /* loss and learning rate of the last closed round; NaN: unknown */
    /* sums of round `sums.round`, added over `sums.lanes` lanes so far */
    struct record_measure sums;
    enum backup_rule rule;
};

/* ---- creation ---- */

static const enum backup_rule rules[BACKUP_TERMS_RULES] = {
    [BACKUP_TERMS_ALL] = BACKUP_ALL,     [BACKUP_TERMS_STATIC] = BACKUP_STATIC,
    [BACKUP_TERMS_AUTO] = BACKUP_AUTO,   [BACKUP_TERMS_DBW] = BACKUP_DBW,
    [BACKUP_TERMS_BLIND] = BACKUP_BLIND, [BACKUP_TERMS_ADASYNC] = BACKUP_ADASYNC};

static struct backup_options closing_options(uint32_t ranks, const struct backup_terms *t)
{
    bool is_known = t->rule < BACKUP_TERMS_RULES;
    return (struct backup_options){.rule = is_known ? rules[t->rule] : BACKUP_RULES,
                                   .rate = (enum backup_rate)t->rate,
                                   .workers = ranks,
                                   .k = t->k,
                                   .least = t->least,
                                   .absence = t->absence,
                                   .gradients = t->gradients};
}

static void closing_begin_all(struct closing *c)
{
    for (uint32_t i = 0; i < c->piece->members; i++)
        (void)backup_began(c->backup, i, c->piece->job->lane->now_ns);
}

bool closing_is_sound(const struct backup_terms *terms, uint32_t ranks)
{
    if (!terms)
        return true;
    struct backup_options options = closing_options(ranks, terms);
    return backup_bytes(&options) > 0;
}

int closing_create(struct piece *p, const struct backup_terms *terms)
{
    struct lane_job *job = p->job;
    if (!terms || backup_terms_are_fixed(terms))
        return 0;
    struct backup_options options = closing_options(p->members, terms);
    struct closing *c =
        arena_alloc(job->lane->options.arena, &job->account, sizeof *c + backup_bytes(&options));
    if (!c)
        return -ENOMEM;
    c->piece = c->wait.piece = p;
    c->rule = options.rule;
    c->loss = c->rate = (double)NAN;
    (void)backup_init(&options, job->lane->now_ns, c + 1, &c->backup);
    closing_begin_all(c);
    *takers_closing(p) = c;
    return 0;
}

static struct closing *closing_of(const struct piece *p)
{
    struct closing **at = takers_closing(p);
    return at ? *at : NULL;
}

void closing_free(struct piece *p)
{
    struct closing *c = closing_of(p);
    if (!c)
        return;
    wait_unlist(&c->wait);
    arena_free(p->job->lane->options.arena, &p->job->account, c);
    *takers_closing(p) = NULL;
}

bool closing_is_here(const struct piece *p) { return closing_of(p); }

/* ---- events ---- */

static uint32_t closing_place_of(const struct rank *rank)
{
    return (uint32_t)(rank - rank->piece->ranks);
}

void closing_arrived(const struct rank *rank, uint32_t gradients)
{
    struct closing *c = closing_of(rank->piece);
    uint32_t place = closing_place_of(rank);
    if (!c || rank->piece->state != PIECE_COLLECTING)
        return;
    /* errors are ignored, because they mean that the rank has left */
    for (uint32_t i = backup_counted(c->backup, place); i < gradients; i++)
        (void)backup_announced(c->backup, place, true, rank->piece->job->lane->now_ns);
}

void closing_late(const struct rank *rank)
{
    struct closing *c = closing_of(rank->piece);
    if (c)
        (void)backup_announced(c->backup, closing_place_of(rank), false,
                               rank->piece->job->lane->now_ns);
}

void closing_interrupted(const struct rank *rank)
{
    struct closing *c = closing_of(rank->piece);
    if (c)
        (void)backup_interrupted(c->backup, closing_place_of(rank), rank->piece->job->lane->now_ns);
}

void closing_began(const struct rank *rank)
{
    struct closing *c = closing_of(rank->piece);
    uint32_t place = closing_place_of(rank);
    if (c && !backup_is_flying(c->backup, place))
        (void)backup_began(c->backup, place, rank->piece->job->lane->now_ns);
}

/* ---- the decision ---- */

/* Reports to the rule which ranks have left with a goodbye, because these ranks compute no further
 * gradient. */
static void closing_note_leavers(struct closing *c)
{
    for (uint32_t i = 0; c->piece->job->has_left && i < c->piece->members; i++) {
        if (c->piece->ranks[i].worker->state == WORKER_LEFT)
            (void)backup_left(c->backup, i);
    }
}

/* Returns whether the rule counts a gradient whose rank has lost its connection after the
 * announcement. The round then waits until the rank has announced this gradient again, or the job
 * fails. */
static bool closing_lacks_rank(const struct closing *c)
{
    for (uint32_t i = 0; i < c->piece->members; i++) {
        struct rank *rank = &c->piece->ranks[i];
        if (backup_is_counted(c->backup, i) && rank->worker->state != WORKER_LEFT &&
            !quorum_waiting(c->piece, rank))
            return true;
    }
    return false;
}

static bool closing_set_is_known(const struct piece *p)
{
    return p->job->choices[p->round % CHOICES_PER_JOB].round == p->round;
}

bool closing_allows(struct piece *p)
{
    struct closing *c = closing_of(p);
    struct backup_decision d;
    if (!c)
        return true;
    wait_stop(&c->wait);
    c->reason = RECORD_REASON_ALL;
    c->go_on_count = 0;
    if (p->is_copy || p->announced == p->members || closing_set_is_known(p))
        return true;
    closing_note_leavers(c);
    backup_decide(c->backup, p->job->lane->now_ns, &d);
    if (d.verb == BACKUP_WAIT && d.until_ns != BACKUP_NEVER_NS)
        wait_start(&c->wait, d.until_ns);
    c->go_on = d.go_on;
    c->go_on_count = d.go_on_count;
    c->reason = (uint8_t)(d.reason == BACKUP_REASON_ALL      ? RECORD_REASON_ALL
                          : d.reason == BACKUP_REASON_GAIN   ? RECORD_REASON_GAIN
                          : d.reason == BACKUP_REASON_MOMENT ? RECORD_REASON_MOMENT
                                                             : RECORD_REASON_ABSENCE);
    return d.verb == BACKUP_CLOSE && !closing_lacks_rank(c);
}

struct rank *closing_next_to_go_on(struct piece *p)
{
    struct closing *c = closing_of(p);
    return c && c->go_on_count > 0 ? &p->ranks[c->go_on[--c->go_on_count]] : NULL;
}

bool closing_expects(const struct rank *rank)
{
    const struct closing *c = closing_of(rank->piece);
    return c && backup_is_flying(c->backup, closing_place_of(rank));
}

uint64_t closing_scale_ns(const struct rank *rank)
{
    const struct closing *c = closing_of(rank->piece);
    return c ? (uint64_t)backup_scale_ns(c->backup, closing_place_of(rank)) : 0;
}

uint8_t closing_reason(const struct piece *p) { return closing_of(p)->reason; }

/* ---- the end of a round ---- */

/* Stores mean loss and learning rate of the round, and returns the number of its gradients. */
static uint32_t closing_note_round(struct closing *c)
{
    const struct piece *p = c->piece;
    const struct rank *lowest = NULL;
    double sum = 0;
    uint32_t inputs = 0, losses = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        if (!rank->part)
            continue;
        lowest = lowest ? lowest : rank;
        inputs += rank->gradients;
        if (!isfinite(rank->part->loss))
            continue;
        losses++;
        sum += (double)rank->part->loss;
    }
    bool has_rate = lowest && lowest->worker->has_settings;
    c->loss = losses > 0 ? sum / losses : (double)NAN;
    c->rate = has_rate ? (double)lowest->worker->settings.rate : (double)NAN;
    return inputs;
}

/* Reports the end of the round to the rule: ranks of the set begin their next gradient, unless they
 * still compute another gradient of the closed round. Ranks that announced after the start of the
 * round are late. */
static void closing_begin_next(struct closing *c)
{
    struct piece *p = c->piece;
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].part && !backup_is_flying(c->backup, i))
            (void)backup_began(c->backup, i, p->job->lane->now_ns);
        else if (p->ranks[i].late)
            closing_late(&p->ranks[i]);
    }
}

/* Reports the sums and the loss of the last closed round to the rule. */
static void closing_report(struct closing *c, double squares, double mean, double product)
{
    const struct backup_measure measure = {.inputs = c->inputs,
                                           .squares = squares,
                                           .mean = mean,
                                           .product = product,
                                           .loss = c->loss,
                                           .rate = c->rate};
    backup_measured(c->backup, &measure);
    c->is_measured = true;
}

/* Returns whether the decisions of the rule depend on times of gradients. */
static bool closing_uses_times(const struct closing *c)
{
    bool asks_for_more = c->rule == BACKUP_STATIC && c->piece->job->sampling->gradients > 1;
    return c->rule == BACKUP_AUTO || c->rule == BACKUP_DBW || c->rule == BACKUP_BLIND ||
           asks_for_more;
}

void closing_closed(struct piece *p)
{
    struct closing *c = closing_of(p);
    if (!c)
        return;
    uint64_t now_ns = p->job->lane->now_ns;
    c->inputs = closing_note_round(c);
    c->is_measured = false;
    backup_closed(c->backup, now_ns);
    if (!c->is_warm && closing_uses_times(c))
        backup_restored(c->backup, now_ns);
    c->is_warm = true;
    closing_begin_next(c);
    if (c->rule == BACKUP_ADASYNC)
        /* this rule uses the loss only, so the sums are reported as unknown */
        closing_report(c, (double)NAN, (double)NAN, (double)NAN);
}

/* Adds the sums of one lane. Returns whether the sums of all lanes are known. */
static bool closing_add(struct closing *c, const struct record_measure *sums)
{
    struct record_measure *all = &c->sums;
    if (all->round != sums->round)
        *all = (struct record_measure){.round = sums->round};
    all->lanes++;
    all->squares += sums->squares;
    all->mean += sums->mean;
    all->product += sums->product;
    return all->lanes == sums->lanes;
}

static struct closing *closing_of_job(struct lane_job *job)
{
    list_for_each_entry (struct piece, p, &job->pieces, link) {
        if (closing_of(p))
            return closing_of(p);
    }
    return NULL;
}

void closing_measured(struct lane_job *job, const struct record_measure *sums)
{
    struct closing *c = closing_of_job(job);
    bool is_of_last = c && sums->round + 1 == c->piece->round && sums->inputs == c->inputs;
    if (is_of_last && !c->is_measured && closing_add(c, sums))
        closing_report(c, c->sums.squares, c->sums.mean, c->sums.product);
}
