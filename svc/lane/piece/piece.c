/* Creates pieces when the coordinator places them, creates them again for other ranks, and frees
 * them. RULES.md: A2, A41. */
#include "svc/lane/piece/piece.h"

#include "svc/lane/job/table.h"
#include "svc/lane/piece/closing.h"
#include "svc/lane/piece/counts.h"
#include "svc/lane/piece/kept.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/recording.h"
#include "svc/lane/piece/replay.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/state/replica.h"
#include "svc/lane/state/sample.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/worker/serving.h"
#include "svc/wire/terms.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool spec_has_rank(const struct lane_piece *spec, uint32_t rank)
{
    return !spec->ranks || ranks_have(spec->ranks, rank);
}

static uint32_t count_members(const struct lane_job *job, const struct lane_piece *spec)
{
    uint32_t members = 0;
    for (uint32_t i = 0; i < job->workers_count; i++)
        members += spec_has_rank(spec, i);
    return members;
}

static void ranks_init(struct piece *p, const struct lane_piece *spec)
{
    struct rank *rank = p->ranks;
    for (uint32_t i = 0; i < p->job->workers_count; i++) {
        if (!spec_has_rank(spec, i))
            continue;
        rank->piece = p;
        rank->worker = &p->job->workers[i];
        list_init(&rank->said[0].tell_link);
        list_init(&rank->said[1].tell_link);
        rank++;
    }
}

static bool piece_is_same(const struct piece *p, const struct lane_piece *spec)
{
    return p->dtype == spec->dtype && p->elements == spec->elements;
}

/* Returns whether the quorum is between 1 and the number of members. */
static bool terms_are_sound(const struct lane_terms *terms, uint32_t members)
{
    if (members == 0 || (unsigned)terms->quorum > QUORUM_ANY)
        return false;
    if ((terms->role == LEADS_SETS || terms->role == LEADS_ROUNDS) && terms->quorum != QUORUM_FIRST)
        return false;
    return terms->quorum != QUORUM_FIRST || (terms->bound >= 1 && terms->bound <= members);
}

static bool rule_is_sound(const struct lane_piece *spec)
{
    const struct lane_terms *terms = &spec->terms;
    bool is_known = update_moments(terms->rule) >= 0;
    bool follows = terms->role == FOLLOWS_ROUNDS;
    enum quorum quorum = follows ? QUORUM_CHOSEN : QUORUM_ALL;
    bool may_lag = (follows && !terms->rule) || terms->role == LEADS_ROUNDS;
    if (terms->lag > (may_lag ? TERMS_LAG_MAX : 0))
        return false;
    if (!terms->rule)
        return !follows || (terms->quorum == QUORUM_CHOSEN && terms->lag > 0);
    return is_known && terms->quorum == quorum && spec->dtype == REDUCE_F32;
}

static uint64_t step_bytes(const struct piece *p)
{
    return 2 * (uint64_t)p->members * piece_bytes(p, p->elements);
}

/* Allocates the memory that the terms of the piece need, or takes over the memory of the piece
 * `before`. */
static int make_kept(struct piece *p, struct piece *before)
{
    struct lane_job *job = p->job;
    if (before) {
        p->kept = before->kept;
        p->kept_use = before->kept_use;
        p->parameters = before->parameters;
        before->kept = NULL;
        before->parameters = NULL;
        return 0;
    }
    uint64_t bytes = kept_bytes(&p->terms, piece_bytes(p, p->elements));
    if (bytes > 0 && !(p->kept = arena_alloc(job->lane->options.arena, &job->account, bytes)))
        return -ENOMEM;
    bool has_answers = piece_follows(p) || (p->kept && kept_has_spare(&p->terms));
    if (has_answers && servings_create(job) < 0)
        return -ENOMEM;
    if (!p->terms.rule)
        return 0;
    p->parameters = parameters_create(p);
    return p->parameters ? 0 : -ENOMEM;
}

/* Allocates the state of a piece that leads the rounds of its job. */
static int make_leader(struct piece *p, const struct lane_piece *spec)
{
    if (p->terms.role != LEADS_ROUNDS)
        return 0;
    p->takers = takers_create(p);
    uint32_t sets = spec->backup ? spec->backup->sets : 0;
    if (!p->takers || counts_create(p) < 0 ||
        (sets & BACKUP_TERMS_REPLAYS && replay_create(p) < 0) ||
        (sets & BACKUP_TERMS_RECORDS && recording_create(p) < 0))
        return -ENOMEM;
    return closing_create(p, spec->backup);
}

static void piece_free_leader(struct piece *p)
{
    closing_free(p);
    replay_free(p);
    recording_free(p);
    takers_free(p);
}

static bool piece_is_sampled(const struct piece *p, const struct lane_piece *spec)
{
    return piece_follows(p) && spec->backup && backup_terms_measure(spec->backup);
}

static struct piece *piece_create(struct lane_job *job, const struct lane_piece *spec,
                                  struct piece *before)
{
    struct arena *arena = job->lane->options.arena;
    uint32_t members = count_members(job, spec);
    size_t places = members + (spec->terms.rule != 0); /* one more entry, for the replica holder */
    struct piece *p = arena_alloc(arena, &job->account, sizeof *p + places * sizeof *p->ranks);
    if (!p)
        return NULL;
    p->job = job;
    p->id = spec->id;
    p->dtype = spec->dtype;
    p->elements = spec->elements;
    p->terms = spec->terms;
    p->continues = spec->continues;
    p->left_round = spec->committed;
    p->members = members;
    if (make_leader(p, spec) < 0 || make_kept(p, before) < 0) {
        counts_forget_piece(p);
        piece_free_leader(p);
        arena_free(arena, &job->account, p->kept);
        arena_free(arena, &job->account, p);
        return NULL;
    }
    job->has_states |= p->parameters != NULL;
    job->is_scaled |= spec->backup && spec->backup->rate == BACKUP_TERMS_PROPORTIONAL;
    if (p->parameters && !before)
        p->parameters->holder = spec->holder;
    snprintf(p->tensor, sizeof p->tensor, "%s", spec->tensor);
    list_init(&p->run_link);
    ranks_init(p, spec);
    if (piece_is_sampled(p, spec))
        sample_add(p);
    return p;
}

static int check_spec(const struct lane_job *job, const struct lane_piece *spec)
{
    uint32_t members = count_members(job, spec);
    bool leads = spec->terms.role == LEADS_ROUNDS;
    bool is_sound = terms_are_sound(&spec->terms, members) && rule_is_sound(spec) &&
                    (!leads || closing_is_sound(spec->backup, members));
    return is_sound ? 0 : -EINVAL;
}

static void piece_add(struct piece *p, uint32_t epoch)
{
    p->epoch = epoch;
    p->job->step_bytes += step_bytes(p);
    piece_list(p);
}

int piece_place(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch,
                bool recovering)
{
    struct piece *p = piece_find(job, spec->id);
    if (p && p->is_dropped)
        return -EAGAIN;
    if (p && p->epoch != epoch)
        return -EBUSY;
    if (p)
        return piece_is_same(p, spec) ? 0 : -EINVAL;
    if (check_spec(job, spec) < 0)
        return -EINVAL;
    p = piece_create(job, spec, NULL);
    if (!p)
        return -ENOMEM;
    p->round = recovering ? 0 : 1;
    piece_add(p, epoch);
    return 1;
}

/* Copies the clocks of the ranks. With clocks the lane knows the round of each rank, so the piece
 * continues at once. A new rank starts with the lowest clock of the ranks. */
static void carry_clocks(struct piece *p, struct piece *before)
{
    if (before->round == 0)
        return;
    p->round = before->round;
    p->is_installed = true;
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *was = piece_rank(before, p->ranks[i].worker->number);
        p->ranks[i].clock = was ? was->clock : quorum_slowest_clock(before);
    }
}

/* Copies state and counters of the former piece. */
static void carry_over(struct piece *p, struct piece *before)
{
    if (quorum_is_loose(p))
        carry_clocks(p, before);
    if (p->parameters)
        replica_carry_over(p);
    p->is_regrouped = true;
    p->state_round = before->round > 0 ? before->round - 1 : before->state_round;
    p->kept_from = before->kept_from;
    p->failure = before->failure;
    memcpy(p->failure_text, before->failure_text, sizeof p->failure_text);
    p->busy_ns = before->busy_ns;
    p->begun_rounds = before->begun_rounds;
    p->begun_ns = before->begun_ns;
    p->gap_ns = before->gap_ns;
    if (p->job->reference == before)
        p->job->reference = p;
}

/* The piece contains an array of its ranks. For another number of ranks a new piece is created, and
 * the stored state is moved to the new piece. */
int piece_regroup(struct lane_job *job, const struct lane_piece *spec, uint32_t epoch)
{
    struct piece *before = piece_find(job, spec->id);
    if (!before || before->epoch == epoch)
        return piece_place(job, spec, epoch, true);
    if (!before->is_held || before->state != PIECE_COLLECTING || before->is_dropped)
        return -EBUSY;
    if (!piece_is_same(before, spec) || check_spec(job, spec) < 0)
        return -EINVAL;
    struct piece *p = piece_create(job, spec, before);
    if (!p)
        return -ENOMEM;
    carry_over(p, before);
    piece_free(before);
    piece_add(p, epoch);
    return 0;
}

void piece_unqueue(struct piece *p)
{
    if (list_is_empty(&p->run_link))
        return;
    uint64_t left = p->elements * (p->steps - p->step) - p->next_element;
    p->job->due_bytes -= piece_bytes(p, left);
    list_remove(&p->run_link);
}

static void forget_announcement(struct worker *w, struct announcement *a)
{
    announcement_drop_payload(w, a);
    list_remove(&a->tell_link);
}

void piece_free(struct piece *p)
{
    struct lane_job *job = p->job;
    servings_forget_piece(p);
    for (uint32_t i = 0; i < p->members; i++) {
        forget_announcement(p->ranks[i].worker, &p->ranks[i].said[0]);
        forget_announcement(p->ranks[i].worker, &p->ranks[i].said[1]);
    }
    account_forget(p);
    piece_wish(p, false);
    piece_unlist(p);
    job->step_bytes -= step_bytes(p);
    piece_unqueue(p);
    arena_free(job->lane->options.arena, &job->account, p->kept);
    replica_free(p);
    sample_free(p);
    counts_forget_piece(p);
    piece_free_leader(p);
    parameters_free(p);
    arena_free(job->lane->options.arena, &job->account, p);
}
