/* Checks between any two turns which lane owns each piece and which lane applies its rounds:
 * compares the state of lanes with the plan of the coordinator (S3, S10, S11). Must never change a
 * lane. */
#include "svc/lane/job/table.h"
#include "test/sim/sim_types.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct piece *piece_on(const struct sim_lane *lane, const struct sim_piece *piece)
{
    struct lane_job *job = lane->is_alive ? job_find(lane->lane, piece->job->id) : NULL;
    struct piece *p = job ? piece_find(job, piece->id) : NULL;
    return p && !p->is_dropped ? p : NULL;
}

/* Returns whether a lane owns the piece. The target of a move owns the piece only after the routes
 * are written, even if the target received other messages about the piece before. */
static bool is_owner(const struct sim_lane *lane, const struct sim_piece *piece, uint32_t number)
{
    const struct sim_move *move = &piece->move;
    bool is_target = move->target == number && move_is_under_way(piece) &&
                     migrator_owner(move->state) == MIGRATOR_SOURCE;
    return !is_target && sim_lane_serves(lane, piece);
}

static bool must_be_served(const struct sim *sim, const struct sim_piece *piece)
{
    bool is_frozen =
        piece->move.state == MIGRATOR_C_MOVING || piece->move.state == MIGRATOR_C_COMMITTING;
    return sim->lanes[piece->lane].is_alive && !piece->is_leaving && !is_frozen;
}

static void check_owner(struct sim *sim, const struct sim_piece *piece)
{
    uint32_t owners = 0;
    for (uint32_t i = 0; i < sim->lanes_count; i++)
        owners += sim->lanes[i].is_alive && is_owner(&sim->lanes[i], piece, i);
    sim_require(sim, owners <= 1, "job %u piece %u has %u owners", piece->job->id, piece->id,
                owners);
    sim_require(sim, owners == 1 || !must_be_served(sim, piece), "job %u piece %u has no owner",
                piece->job->id, piece->id);
}

void check_stays(struct sim *sim, const struct sim_piece *piece, uint32_t source)
{
    const struct piece *p = piece_on(&sim->lanes[source], piece);
    sim_require(sim, piece->lane == source && p && p->epoch == piece->epoch && !p->is_held,
                "job %u piece %u: its source does not own it after a move that was undone",
                piece->job->id, piece->id);
}

/* Checks a lane that begins to serve the piece. With the state of the former owner, the lane must
 * continue at exactly its round. Without the state, the lane's round must be at least that of its
 * workers. */
static void check_beginning(struct sim *sim, struct sim_piece *piece, const struct piece *p)
{
    uint64_t before = p->round - 1;
    sim_require(sim, !p->is_installed || before == piece->applied,
                "job %u piece %u goes on after round %" PRIu64 ", not %" PRIu64, piece->job->id,
                piece->id, before, piece->applied);
    for (uint32_t i = 0; i < piece->job->workers_count && !kind_is_loose(piece); i++) {
        const struct sim_view *v = &piece->job->workers[i].views[piece->id - 1];
        sim_require(sim, p->failure || before >= v->committed,
                    "job %u piece %u goes back to round %" PRIu64, piece->job->id, piece->id,
                    p->round);
    }
    piece->applied = before;
}

static void check_applied(struct sim *sim, struct sim_piece *piece, uint32_t number)
{
    const struct piece *p = piece_on(&sim->lanes[number], piece);
    struct sim_seen *seen = &piece->seen[number];
    bool is_same = p && seen->epoch == p->epoch && seen->round > 0;
    if (p && p->round > 0 && !is_same && piece->move.state != MIGRATOR_C_COMMITTING) {
        check_beginning(sim, piece, p);
    } else if (is_same && p->round > seen->round) {
        sim_require(
            sim, seen->round - 1 == piece->applied,
            "job %u piece %u: round %" PRIu64 " is applied by %s, %" PRIu64 " by another already",
            piece->job->id, piece->id, seen->round, sim->lanes[number].address, piece->applied);
        piece->applied = p->round - 1;
    }
    if (piece->move.state != MIGRATOR_C_COMMITTING || is_same)
        *seen = p ? (struct sim_seen){p->epoch, p->round} : (struct sim_seen){0};
}

void explain_owner(const struct sim *sim, const struct sim_piece *piece)
{
    for (uint32_t i = 0; i < sim->lanes_count; i++) {
        const struct piece *p = piece_on(&sim->lanes[i], piece);
        if (p)
            print_error("job %u piece %u on %s: epoch %u, round %" PRIu64
                        ", %u have spoken, %u announced%s%s%s, state %d%s%s\n",
                        piece->job->id, piece->id, sim->lanes[i].address, p->epoch, p->round,
                        p->spoken, p->announced, p->is_held ? ", held" : "",
                        p->is_installed ? ", installed" : "", p->is_copy ? ", copy" : "",
                        (int)p->state, p->failure ? ": " : "", p->failure_text);
    }
}

void check_owners(struct sim *sim, struct sim_job *job)
{
    for (uint32_t k = 0; k < job->pieces_count; k++) {
        check_owner(sim, &job->pieces[k]);
        for (uint32_t i = 0; i < sim->lanes_count; i++)
            check_applied(sim, &job->pieces[k], i);
    }
}
