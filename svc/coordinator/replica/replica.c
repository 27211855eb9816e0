/* Replicas: chooses the holder of each piece, and decides which lanes and holders receive a
 * message. The holder is stored before a lane relies on the copy. A holder is kept while it is
 * alive, unless its process becomes the owner of the piece: a copy there would be lost together
 * with the piece (RULES.md: K57; svc/wire/README.md: W20). */
#include "svc/coordinator/replica/replica.h"

#include "svc/base/cleanup.h"
#include "svc/base/hash.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/job/tensor.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNFIT_NS (60 * NS_PER_S)

static bool wants_copy(const struct tensor *tensor, const struct piece *piece)
{
    return tensor->job->terms->durability == DURABILITY_REPLICA && tensor->terms.rule &&
           piece->elements > 0 && !tensor->failure;
}

/* Returns whether the job may have holders. After a restart this is unknown until a worker is
 * connected again. */
static bool may_have_holders(const struct job *job)
{
    return job->terms->durability == DURABILITY_REPLICA ||
           job->terms->durability == DURABILITY_UNSAID;
}

/* --- choice --- */

/* Returns whether an operator has drained all lanes of the aggregator. A drained aggregator will
 * end, so it is chosen as a holder only if there is no other aggregator. */
static bool is_drained(const struct aggregator *a)
{
    size_t withheld = 0;
    for (size_t i = 0; i < a->lanes_count; i++)
        withheld += a->lanes[i].use == LANE_WITHHELD;
    return withheld == a->lanes_count;
}

static bool may_keep(const struct aggregator *a, const struct lane *lane)
{
    return a->state == AGGREGATOR_UP && !a->is_stopping && a != lane->aggregator &&
           clock_now_ns() >= a->unfit_until_ns;
}

/* Returns the score of a candidate. The candidate with the highest score is chosen. Drained
 * aggregators have the lowest scores. Aggregators on other hosts have higher scores, because all
 * processes of a host fail together. Among candidates of equal rank a hash of owner and job
 * decides, so the choice does not change when other aggregators join or leave. */
static uint64_t score(const struct aggregator *a, const struct job *job, const struct lane *lane)
{
    char text[64];
    bool is_elsewhere = strcmp(a->node, lane->aggregator->node) != 0;
    snprintf(text, sizeof text, "%u %u %u", job->id, lane->aggregator->id, a->id);
    return (is_drained(a) ? 0 : UINT64_C(1) << 33) + (is_elsewhere ? UINT64_C(1) << 32 : 0) +
           hash_text(text);
}

uint32_t keeping_choose_for(const struct job *job, const struct lane *lane)
{
    const struct aggregator *best = NULL;
    uint64_t best_score = 0;
    list_for_each_entry (const struct aggregator, a, &job->service->aggregators, link) {
        if (!may_keep(a, lane) || (best && score(a, job, lane) <= best_score))
            continue;
        best = a;
        best_score = score(a, job, lane);
    }
    return best ? best->id : 0;
}

static bool is_lost(const struct aggregator *a) { return !a || a->state == AGGREGATOR_LOST; }

static bool may_go_on(const struct aggregator *a, const struct lane *lane)
{
    return !is_lost(a) && !a->is_stopping && a != lane->aggregator;
}

uint32_t keeping_choose(const struct tensor *tensor, const struct piece *piece,
                        const struct lane *lane)
{
    const struct job *job = tensor->job;
    if (!wants_copy(tensor, piece))
        return piece->keeping.holder;
    const struct keeping *now = &piece->keeping;
    bool stays = now->holder && !now->is_unfit &&
                 may_go_on(aggregator_find(job->service, now->holder), lane);
    return stays ? piece->keeping.holder : keeping_choose_for(job, lane);
}

/* Sets the replica holder and the former holder. If the current holder becomes the former holder,
 * `holder_knows` is copied to `former_knows`. */
static void set(struct piece *piece, uint32_t holder, uint32_t former)
{
    struct keeping *now = &piece->keeping;
    bool knows = former == now->holder ? now->holder_knows : now->former_knows;
    /* the former holder becomes the holder again, and already has a copy */
    bool returns = holder == now->former;
    if (now->holder != holder)
        *now = (struct keeping){.holder = holder, .begins = !returns};
    now->former = former;
    now->former_knows = former && knows;
    now->holder_knows = now->lane_knows = false;
}

/* Sets the holder of a placed piece. The lane may read the copy of this holder as soon as the lane
 * has the piece. */
void keeping_placed(struct job *job, struct piece *piece, uint32_t holder)
{
    if (piece->keeping.former && piece->keeping.former != holder)
        keeping_end_piece(job, piece->keeping.former, piece->id);
    set(piece, holder, 0);
    piece->keeping.is_unfit = false;
    job->copies->holders_ns = clock_now_ns();
}

void keeping_moved(struct job *job, struct piece *piece, uint32_t holder, bool is_copied)
{
    if (piece->keeping.holder && piece->keeping.holder != holder)
        keeping_end_piece(job, piece->keeping.holder, piece->id);
    keeping_placed(job, piece, holder);
    if (!is_copied)
        return;
    piece->keeping.begins = false;
    piece->keeping.holder_knows = true;
}

/* Returns whether tasks have to leave the lane, even without a holder on another aggregator. */
static bool must_leave(const struct lane *lane)
{
    return lane->use == LANE_WITHHELD || lane->aggregator->is_stopping;
}

int keeping_may_move(const struct tensor *tensor, const struct piece *piece, uint32_t holder,
                     struct err *err)
{
    const struct keeping *now = &piece->keeping;
    if (holder && holder != now->holder && holder == now->former)
        return err_set(err, -EAGAIN, "the replica of task %u is being read; try again later",
                       piece->task);
    bool is_kept = !now->is_unfit && !is_lost(aggregator_find(tensor->job->service, now->holder));
    if (!holder && is_kept && !must_leave(piece->lane))
        return err_set(
            err, -EAGAIN,
            "task %u would have no replica holder at its new place; join another aggregator",
            piece->task);
    return 0;
}

/* --- change of holders --- */

struct change {
    struct tensor *tensor;
    struct piece *piece;
    uint32_t holder;
};

/* Finds pieces whose holder changes. Pieces that are moving or not ready are left out, because
 * their holder is chosen together with the new lane. */
static size_t find_changes(struct job *job, struct change *changes, size_t room)
{
    size_t count = 0;
    job_each_piece (piece, tensor, job) {
        if (count == room || piece->state != PIECE_READY || !wants_copy(tensor, piece) ||
            job->service->on->job->piece_moves(job, piece->id))
            continue;
        uint32_t holder = keeping_choose(tensor, piece, piece->lane);
        if (holder != piece->keeping.holder)
            changes[count++] = (struct change){tensor, piece, holder};
    }
    return count;
}

/* Returns the former holder after the change. The oldest living former holder stays, because the
 * lane may still have to read the copy of this holder. A holder that cannot connect to the lane is
 * left out, because the lane would wait for its connection forever. */
static uint32_t former_of(struct service *s, const struct keeping *now, uint32_t holder)
{
    if (!is_lost(aggregator_find(s, now->former)))
        return now->former == holder ? 0 : now->former;
    return now->is_unfit || is_lost(aggregator_find(s, now->holder)) ? 0 : now->holder;
}

static int store_changes(struct job *job, const struct change *changes, size_t count)
{
    struct store *store = job->service->store;
    struct store_row row;
    struct err err;
    store_begin(store);
    for (size_t i = 0; i < count; i++) {
        piece_row(changes[i].tensor, changes[i].piece, &row);
        row.piece.keeper = changes[i].holder;
        row.piece.former_keeper =
            former_of(job->service, &changes[i].piece->keeping, changes[i].holder);
        store_put(store, &row);
    }
    int error = store_commit(store, &err);
    if (error < 0)
        log_error("job %s: its replicas were not moved: %s", job->name, err.text);
    return error;
}

static bool lacks_holder(const struct job *job)
{
    job_each_piece (piece, tensor, job)
        if (piece->keeping.holder == 0 && wants_copy(tensor, piece))
            return true;
    return false;
}

static void note_lack(struct job *job)
{
    bool lacks = lacks_holder(job);
    if (lacks && !job->copies->lacks_holder)
        log_warn("job %s: its parameters and moments have no replicas, because the service has no "
                 "other aggregator; raise --aggregators, or use --durability worker",
                 job->name);
    if (!lacks && job->copies->lacks_holder)
        log_info("job %s: its parameters and moments have replicas again", job->name);
    job->copies->lacks_holder = lacks;
    if (lacks)
        fleet_want_another(job->service);
}

/* Drops the copy of a holder that cannot connect to the lane, because no lane can read it. */
static void end_unfit(const struct job *job, const struct piece *piece)
{
    if (piece->keeping.is_unfit)
        keeping_end_piece(job, piece->keeping.holder, piece->id);
}

static void change_holders(struct job *job)
{
    size_t pieces = job->index->pieces_count;
    _cleanup_free_ struct change *changes = calloc(pieces ? pieces : 1, sizeof *changes);
    size_t count = changes ? find_changes(job, changes, pieces) : 0;
    if (!changes || (count > 0 && store_changes(job, changes, count) < 0))
        return service_retry_later(job->service);
    if (count > 0)
        log_debug("job %s: %zu pieces have other replica holders", job->name, count);
    for (size_t i = 0; i < count; i++) {
        uint32_t former = former_of(job->service, &changes[i].piece->keeping, changes[i].holder);
        end_unfit(job, changes[i].piece);
        set(changes[i].piece, changes[i].holder, former);
        job->copies->has_formers |= former > 0;
    }
    if (count > 0)
        job->copies->holders_ns = clock_now_ns();
}

/* --- former holders --- */

/* Counts the states of the job on the lane. Returns false if the lane has not yet confirmed the
 * holders of all pieces. */
static bool count_states(const struct job *job, const struct lane *lane, size_t *ret_count)
{
    bool is_told = true;
    *ret_count = 0;
    job_each_piece (piece, tensor, job) {
        if (piece->lane != lane || !tensor->terms.rule)
            continue;
        *ret_count += piece->elements > 0;
        is_told &= piece->keeping.lane_knows;
    }
    return is_told;
}

static bool all_copied(const struct job *job, const struct share *share)
{
    const WIRE(JobUse) *use = jobs_use_of(job, share);
    size_t states;
    return use && count_states(job, share->lane, &states) && use->states == states &&
           (uint64_t)use->copied + use->empty == states;
}

static void forget_formers(struct job *job, const struct lane *lane)
{
    job->copies->has_formers = false;
    job_each_piece (piece, tensor, job) {
        if (piece->lane == lane && piece->keeping.former) {
            /* the former holder drops a copy that the lane will not read */
            keeping_end_piece(job, piece->keeping.former, piece->id);
            piece->keeping.former = 0;
            /* the lane gets a new message, so that it does not wait for the former holder */
            piece->keeping.lane_knows = false;
        }
        job->copies->has_formers |= piece->keeping.former > 0;
    }
    keeping_tell(job, TELL_LANE);
}

/* Ignores counters that were requested before the lane received its present holders, because these
 * counters may describe copies of former holders. An aggregator handles requests in order. */
void keeping_look(struct job *job, const struct lane *lane, uint64_t asked_ns)
{
    if (asked_ns < job->copies->holders_ns || lane->aggregator->measured_ns < asked_ns)
        return;
    for (size_t i = 0; job->copies->has_formers && i < job->shares_count; i++)
        if (job->shares[i].lane == lane && all_copied(job, &job->shares[i]))
            forget_formers(job, lane);
}

void keeping_relieve(struct aggregator *a, const struct job *job, uint32_t lane, const char *why)
{
    char name[AGGREGATOR_NAME_BYTES];
    log_warn("job %s: %s stores no replicas of the tasks on lane %u: %s", job->name,
             aggregator_name(a, name, sizeof name), lane, why);
    a->unfit_until_ns = clock_now_ns() + UNFIT_NS;
    timer_start(a->service->loop, &a->service->retries->unfit, a->unfit_until_ns);
}

void keeping_unreachable(struct aggregator *a, struct job *job, const struct lane *lane)
{
    keeping_relieve(a, job, lane->id, "the holder cannot connect to the lane");
    a->service->on->job->holder_is_unfit(job, a, lane);
    job_each_piece (piece, tensor, job) {
        struct keeping *now = &piece->keeping;
        if (piece->lane != lane)
            continue;
        now->is_unfit |= now->holder == a->id;
        if (now->former != a->id)
            continue;
        now->former = 0; /* the lane cannot connect to this holder, and so cannot read its copy */
        now->lane_knows = false;
        keeping_end_piece(job, a->id, piece->id);
    }
    keeping_check(job);
}

/* --- changes --- */

/* Informs the present holders before other holders replace them, because a new owner may need the
 * copies of the present holders. */
void keeping_check(struct job *job)
{
    if (job->failure || job->service->phase != SERVICE_UP || !may_have_holders(job))
        return;
    keeping_tell(job, TELL_HOLDER);
    change_holders(job);
    note_lack(job);
    keeping_tell(job, TELL_LANE);
    keeping_tell(job, TELL_FORMER);
    keeping_tell(job, TELL_HOLDER);
}

void keeping_check_all(struct service *s)
{
    list_for_each (node, &s->jobs)
        keeping_check(list_entry(node, struct job, link));
}

typedef void (*visit_fn)(struct piece *piece, const struct aggregator *a);

static void each_piece(struct aggregator *a, visit_fn visit)
{
    list_for_each_entry (struct job, job, &a->service->jobs, link) {
        job_each_piece (piece, tensor, job)
            visit(piece, a);
    }
}

static void tell_anew(struct piece *piece, const struct aggregator *a)
{
    if (piece->keeping.holder == a->id)
        piece->keeping.holder_knows = false;
    if (piece->keeping.former == a->id)
        piece->keeping.former_knows = false;
    if (piece->lane && piece->lane->aggregator == a)
        piece->keeping.lane_knows = false;
}

/* Removes a lost former holder, so that the lane does not wait for its copy. */
static void forget_former(struct piece *piece, const struct aggregator *a)
{
    if (piece->keeping.former != a->id)
        return;
    piece->keeping.former = 0;
    piece->keeping.lane_knows = false;
}

void keeping_aggregator_lost(struct aggregator *a)
{
    each_piece(a, forget_former);
    keeping_check_all(a->service);
}

bool keeping_has(const struct aggregator *a, const struct job *job, const struct lane *lane)
{
    job_each_piece (piece, tensor, job) {
        bool is_its = piece->keeping.holder == a->id || piece->keeping.former == a->id;
        if (is_its && (!lane || piece->lane == lane))
            return true;
    }
    return a->service->on->job->has_copies_at(job, a, lane) ||
           a->service->on->job->keeps_what_moves(job, a, lane);
}

static void ended(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
}

/* Orders a holder to drop copies. A disconnected holder receives the order when it returns. */
static void send_end(struct aggregator *a, const struct job *job, uint32_t *pieces, size_t count,
                     bool others)
{
    if (a && a->state == AGGREGATOR_UP)
        call_send(a,
                  &MESSAGE(0, COPIES_END, copies_end, .job_id = job->id, .pieces = pieces,
                           .n_pieces = count, .others = others),
                  CALL_DEADLINE_NS, ended, NULL, 0);
}

/* Sends to a returning holder the list of pieces whose copies it must keep, so that it drops all
 * other copies. If the list exceeds one message, the other copies are dropped at the end of the
 * job. */
static void end_others(struct aggregator *a, const struct job *job)
{
    size_t room = job->index->pieces_count < MESSAGE_PIECES_MAX ? job->index->pieces_count
                                                                : MESSAGE_PIECES_MAX;
    _cleanup_free_ uint32_t *pieces = calloc(room + 1, sizeof *pieces);
    size_t count = 0;
    job_each_piece (piece, tensor, job)
        if (pieces && count < room &&
            (piece->keeping.holder == a->id || piece->keeping.former == a->id))
            pieces[count++] = piece->id;
    if (pieces && count < MESSAGE_PIECES_MAX)
        send_end(a, job, pieces, count, true);
}

void keeping_aggregator_back(struct aggregator *a)
{
    list_for_each_entry (const struct job, job, &a->service->jobs, link)
        if (may_have_holders(job))
            end_others(a, job);
    each_piece(a, tell_anew);
    keeping_check_all(a->service);
}

void keeping_end_tensor(const struct tensor *tensor)
{
    tensor_each_piece (piece, tensor) {
        if (piece->keeping.holder)
            keeping_end_piece(tensor->job, piece->keeping.holder, piece->id);
        if (piece->keeping.former)
            keeping_end_piece(tensor->job, piece->keeping.former, piece->id);
    }
}

void keeping_end_piece(const struct job *job, uint32_t holder, uint32_t piece)
{
    send_end(aggregator_find(job->service, holder), job, &piece, 1, false);
}

void keeping_end(struct job *job)
{
    if (!may_have_holders(job) && job->index->tables.count == 0)
        return;
    list_for_each_entry (struct aggregator, a, &job->service->aggregators, link)
        send_end(a, job, NULL, 0, false);
}
