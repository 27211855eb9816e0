/* Plan of a migration: the pieces that move, and checks whether they may move now. A failed check
 * leaves everything unchanged. migration.c has the steps. */
#include "svc/base/cleanup.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/claim.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/internal.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/snapshot/snapshot.h"

#include <errno.h>
#include <stdlib.h>

/* A task that should move. */
struct wanted {
    uint32_t task, target;
    enum share_how how;
    bool is_found, travels, is_forced;
};

struct search {
    struct wanted *wanted;
    size_t wanted_count;
    struct traveller *travellers; /* pieces that will move; NULL: the pieces are only counted */
    size_t count;
    struct err *err;
};

static int compare_wanted(const void *a, const void *b)
{
    uint32_t left = ((const struct wanted *)a)->task, right = ((const struct wanted *)b)->task;
    return left < right ? -1 : left > right;
}

static struct wanted *find_wanted(const struct search *search, uint32_t task)
{
    struct wanted key = {.task = task};
    return bsearch(&key, search->wanted, search->wanted_count, sizeof key, compare_wanted);
}

/* --- checks --- */

int moving_check(const struct job *job, struct err *err)
{
    if (moving_is_busy(job))
        return err_set(err, -EBUSY, "tasks of job %.64s are moving already; try again later",
                       job->name);
    if (job_has_claim(job, CLAIM_SNAPSHOT))
        return err_set(err, -EBUSY, "a snapshot of job %.64s is being made; try again later",
                       job->name);
    if (job->failure)
        return err_set(err, -EAGAIN, "job %.64s has failed", job->name);
    if (job_has_claim(job, CLAIM_REGROUP))
        return err_set(err, -EAGAIN, "workers of job %.64s join or leave; try again later",
                       job->name);
    /* No move begins while a worker is disconnected: the worker may not receive the new route, and
     * would not learn that the source has released the pieces (K20). */
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (job->sessions[rank] && job->sessions[rank]->state == SESSION_AWAY)
            return err_set(
                err, -EAGAIN,
                "rank %u of job %.64s is not connected to the coordinator; try again later", rank,
                job->name);
    return 0;
}

static int check_piece(const struct search *search, const struct job *job,
                       const struct piece *piece)
{
    if (!piece->lane || piece->state != PIECE_READY)
        return err_set(search->err, -EAGAIN,
                       "task %u of job %.64s is being placed; try again later", piece->task,
                       job->name);
    if (piece->lane->aggregator->state != AGGREGATOR_UP)
        return err_set(search->err, -EAGAIN,
                       "aggregator %u, which serves task %u, is not connected; try again later",
                       piece->lane->aggregator->id, piece->task);
    return 0;
}

static int check_targets(struct job *job, const struct search *search)
{
    uint32_t last = 0;
    for (size_t i = 0; i < search->wanted_count; i++) {
        uint32_t id = search->wanted[i].target;
        struct lane *lane = id == last ? NULL : lane_find(job->service, id);
        if (id == last)
            continue;
        last = id;
        if (!lane || lane->aggregator->state == AGGREGATOR_LOST)
            return err_set(search->err, -ENOENT, "there is no lane %u; see gradpool status", id);
        if (lane->aggregator->state != AGGREGATOR_UP)
            return err_set(search->err, -EAGAIN,
                           "aggregator %u, which has lane %u, is not connected; try again later",
                           lane->aggregator->id, id);
        if (lane->use == LANE_WITHHELD && !search->wanted[i].is_forced)
            return err_set(search->err, -EAGAIN, "lane %u is drained; see gradpool drain --undo",
                           id);
        if (lane->aggregator->is_stopping)
            return err_set(search->err, -EAGAIN,
                           "aggregator %u, which has lane %u, is ending; choose another lane",
                           lane->aggregator->id, id);
        if (!jobs_share(job, lane))
            return err_set(
                search->err, -ENOMEM,
                "gradpool serve has no memory for a move of job %.64s; raise its memory limit",
                job->name);
    }
    return 0;
}

/* --- which pieces move --- */

static int note_traveller(struct search *search, const struct tensor *tensor,
                          const struct piece *piece, const struct wanted *wanted)
{
    const struct lane *target = lane_find(tensor->job->service, wanted->target);
    uint32_t holder = keeping_choose(tensor, piece, target);
    int error = keeping_may_move(tensor, piece, holder, search->err);
    if (error < 0)
        return error;
    if (search->travellers)
        search->travellers[search->count] =
            (struct traveller){.piece = piece->id,
                               .source = piece->lane->id,
                               .target = wanted->target,
                               .how = wanted->how,
                               .holder = holder,
                               .is_copied = holder && holder != piece->keeping.holder};
    search->count++;
    return 0;
}

static int look_at(struct search *search, const struct tensor *tensor, const struct piece *piece)
{
    struct wanted *wanted = find_wanted(search, piece->task);
    if (!wanted)
        return 0;
    wanted->is_found = true;
    if (tensor->failure || (piece->lane && piece->lane->id == wanted->target))
        return 0;
    int error = check_piece(search, tensor->job, piece);
    if (error < 0)
        return error;
    wanted->travels = true;
    return note_traveller(search, tensor, piece, wanted);
}

static int look_at_all(struct search *search, const struct job *job)
{
    int error = 0;
    search->count = 0;
    for (size_t t = 0; error == 0 && t < job->tensors_count; t++)
        for (size_t i = 0; error == 0 && i < job->tensors[t]->pieces_count; i++)
            error = look_at(search, job->tensors[t], &job->tensors[t]->pieces[i]);
    for (size_t i = 0; error == 0 && i < search->wanted_count; i++)
        if (!search->wanted[i].is_found)
            error = err_set(search->err, -ENOENT, "job %.64s has no task %u; see gradpool explain",
                            job->name, search->wanted[i].task);
    return error;
}

/* --- begin --- */

static int compare_sources(const void *a, const void *b, void *travellers)
{
    const struct traveller *left = (struct traveller *)travellers + *(const uint32_t *)a,
                           *right = (struct traveller *)travellers + *(const uint32_t *)b;
    if (left->source != right->source)
        return left->source < right->source ? -1 : 1;
    return left->piece < right->piece ? -1 : left->piece > right->piece;
}

static int compare_targets(const void *a, const void *b, void *travellers)
{
    const struct traveller *left = (struct traveller *)travellers + *(const uint32_t *)a,
                           *right = (struct traveller *)travellers + *(const uint32_t *)b;
    if (left->target != right->target)
        return left->target < right->target ? -1 : 1;
    if (left->holder != right->holder)
        return left->holder < right->holder ? -1 : 1;
    return left->piece < right->piece ? -1 : left->piece > right->piece;
}

static uint32_t *order(struct migration *m, int (*compare)(const void *, const void *, void *))
{
    uint32_t *indexes = calloc(m->count + 1, sizeof *indexes);
    for (uint32_t i = 0; indexes && i < m->count; i++)
        indexes[i] = i;
    if (indexes)
        qsort_r(indexes, m->count, sizeof *indexes, compare, m->travellers);
    return indexes;
}

/* Creates the migration, which owns search->travellers from then on. Returns NULL if memory is
 * missing. */
static struct migration *migration_create(struct job *job, struct search *search)
{
    struct migration *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    *m = (struct migration){.service = job->service,
                            .id = ++job->service->door->next_id,
                            .job = job->id,
                            .state = MIGRATOR_C_IDLE,
                            .travellers = search->travellers,
                            .count = search->count};
    m->by_source = order(m, compare_sources);
    m->by_target = order(m, compare_targets);
    if (!m->by_source || !m->by_target) {
        free(m->by_source);
        free(m->by_target);
        free(m);
        return NULL;
    }
    for (size_t i = 0; i < search->wanted_count; i++)
        m->moved.tasks += search->wanted[i].travels;
    search->travellers = NULL;
    return m;
}

/* Prevents tensors that are declared during the move from joining the moving tasks. Such tensors
 * form new tasks, because all pieces of a task are on one lane. */
static void close_tasks(struct job *job, const struct search *search)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (find_wanted(search, job->shares[i].open_task))
            job->shares[i].open_task = 0;
}

/* Drops the failed tensors' pieces in the moving tasks. No worker uses these pieces, but a lane
 * with such pieces would never count as empty. */
static void drop_failed(struct job *job, const struct search *search)
{
    job_each_piece (piece, tensor, job) {
        if (!tensor->failure || !piece->lane || !find_wanted(search, piece->task))
            continue;
        telling_drop(piece->lane, job->id, &piece->id, 1);
        piece_detach(tensor, piece);
    }
}

static int search_all(struct job *job, struct search *search)
{
    int error = look_at_all(search, job);
    if (error < 0)
        return error;
    search->travellers = calloc(search->count + 1, sizeof *search->travellers);
    return search->travellers ? look_at_all(search, job) : -ENOMEM;
}

int moving_start(struct job *job, const struct task_move *moves, size_t count, moving_done_fn done,
                 uint64_t context, struct err *err)
{
    _cleanup_free_ struct wanted *wanted = calloc(count + 1, sizeof *wanted);
    struct search search = {.wanted = wanted, .wanted_count = count, .err = err};
    struct migration *m = NULL;
    for (size_t i = 0; wanted && i < count; i++)
        wanted[i] = (struct wanted){.task = moves[i].task,
                                    .target = moves[i].lane,
                                    .how = moves[i].how,
                                    .is_forced = moves[i].is_forced};
    if (wanted)
        qsort(wanted, count, sizeof *wanted, compare_wanted);
    int error = wanted ? moving_check(job, err) : -ENOMEM;
    if (error == 0)
        error = check_targets(job, &search);
    if (error == 0)
        error = search_all(job, &search);
    if (error == 0 && !(m = migration_create(job, &search)))
        error = -ENOMEM;
    free(search.travellers);
    if (error < 0)
        return error == -ENOMEM ? err_set(err, error,
                                          "gradpool serve has no memory for a move of job %.64s; "
                                          "raise its memory limit",
                                          job->name)
                                : error;
    m->done = done;
    m->context = context;
    close_tasks(job, &search);
    drop_failed(job, &search);
    migration_begin(m, job);
    return 0;
}
