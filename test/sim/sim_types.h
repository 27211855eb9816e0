/* The data of a world, for the files of this folder only. */
#ifndef GRADPOOL_TEST_SIM_TYPES_H
#define GRADPOOL_TEST_SIM_TYPES_H

#include "migrator/migrator.h"
#include "svc/fabric/region.h"
#include "svc/lane/lane.h"
#include "svc/reduce/update.h"
#include "test/sim/sim.h"

#define SIM_LANES_MAX 8 /* maximum number of lanes in a run, including dead lanes */
#define SIM_JOBS_MAX 4
#define SIM_WORKERS_MAX 12
#define SIM_PIECES_MAX 16
#define SIM_NOWHERE UINT32_MAX
enum { SIM_INPUTS, SIM_LANDINGS, SIM_COPIES, SIM_REGIONS }; /* ids of regions */
#define SIM_GUARD_BYTES 64

/* Kinds of pieces. From SIM_FIRST on, the ranks of a round are not known in advance. */
enum sim_kind { SIM_SUM, SIM_UPDATE, SIM_FIRST, SIM_STALE, SIM_ANY };

/* The operation of one round of a piece. All workers know this operation. */
struct sim_plan {
    uint8_t operation; /* enum record_operation */
    uint32_t root;
};

/* --- a worker's view --- */

enum sim_standing { SIM_IDLE, SIM_ANNOUNCED, SIM_LANDED };

/* One of the two rounds of a piece that may be open, selected by the lowest bit of the round. */
struct sim_open {
    uint64_t round;
    enum sim_standing standing;
    uint32_t word;
    bool is_unsent;
};

struct sim_view {
    bool has_failed; /* the worker was informed that a lost lane had the piece's state */
    uint32_t known[SIM_WORKERS_MAX]; /* rounds of each rank that the result must contain */
    struct sim_open open[2];
    uint64_t begun, committed;
    uint32_t lane, epoch;
    uint32_t next_lane, next_epoch; /* the route that workers get next; SIM_NOWHERE: none */
    bool is_released;               /* the former lane has released the piece */
    uint32_t fence; /* number of the lane that must not be able to write any more (W5) */
    bool owes_idle; /* the worker still has to report that no round is open */
    bool told_copy; /* the address of the state's copy was sent to the lane, if there is a copy */
};

enum sim_link_state { SIM_LINK_NONE, SIM_LINK_CONNECTING, SIM_LINK_OPEN, SIM_LINK_CLOSED };

struct sim_link {
    enum sim_link_state state;
    struct fabric_conn *conn;
    uint32_t number; /* number of the lane */
    bool said_goodbye;
    struct record_settings settings; /* settings of a round that the lane received last */
};

struct sim_worker {
    struct sim *sim;
    struct sim_job *job;
    uint32_t rank;
    struct fabric *fabric;
    bool is_mapped;
    struct region regions[SIM_REGIONS];
    struct sim_link links[SIM_LANES_MAX];
    struct sim_view views[SIM_PIECES_MAX];
    uint32_t next_word;
    uint64_t stopped_until_ns;
    bool is_killed, has_left;
    bool has_error; /* error of the whole job */
};

/* --- the world --- */

/* A move of a piece in use, from the view of the coordinator. */
struct sim_move {
    enum migrator_state state; /* state of the coordinator; MIGRATOR_C_IDLE: no move */
    uint32_t source, target, epoch;
    uint64_t next_turn; /* turn of the coordinator's next step */
};

/* The state of the piece in this lane at the last check. */
struct sim_seen {
    uint32_t epoch;
    uint64_t round;
};

/* The set of ranks of a round whose set is not known in advance. */
struct sim_result_of {
    uint32_t set;
    float *result; /* NULL: no worker has the result yet */
};

struct sim_piece {
    struct sim_job *job;
    uint32_t id;
    enum sim_kind kind;
    uint32_t bound;
    enum update_rule rule;
    float *model[1 + UPDATE_MOMENTS_MAX]; /* with an update rule: parameters, then moments */
    uint64_t model_round, model_steps;    /* last round, and number of steps, in `model` */
    struct sim_result_of *history;        /* for SIM_FIRST: results, indexed by round */
    uint64_t applied;                     /* the last round that a lane has applied to its state */
    struct sim_seen seen[SIM_LANES_MAX];
    bool state_died; /* the state was lost with its lane */
    uint64_t elements;
    uint64_t input_offset[2], landing_offset[2]; /* the same for every worker */
    uint64_t copy_offset;
    uint32_t lane, epoch;
    uint32_t epochs; /* number of epochs so far */
    bool is_leaving; /* the lane was ordered to drop the piece */
    struct sim_move move;
    float *result[2];
    uint64_t result_round[2];
};

struct sim_job {
    uint32_t id, workers_count, pieces_count;
    uint64_t rounds;
    bool is_double; /* workers have two buffers, so they may announce the next round early */
    bool is_inline; /* short inputs are sent with the record */
    bool is_doomed; /* a worker was killed */
    bool lost_lane; /* a lane that was connected to a worker of the job was killed */
    bool is_dropped;
    bool is_reported;    /* a lane has reported the job's failure */
    uint32_t victim;     /* rank of the killed worker; SIM_NOWHERE: unknown */
    uint64_t lost_ranks; /* ranks whose connection a lane has lost */
    uint64_t doomed_turn;
    struct sim_piece pieces[SIM_PIECES_MAX];
    struct sim_worker workers[SIM_WORKERS_MAX];
};

struct sim_lane {
    struct arena *arena;
    struct fabric *fabrics[2]; /* one for each network */
    struct lane *lane;
    bool is_alive;
    uint64_t rerouted_turn; /* turn in which the coordinator detects the death of the lane */
    char address[FABRIC_ADDRESS_BYTES_MAX];
};

struct sim {
    struct sim_options options;
    struct sim_result result;
    uint64_t random;
    struct mem_network *networks[2]; /* SIM_MESSAGES, SIM_MAPPED; both clocks are equal */
    struct sim_lane lanes[SIM_LANES_MAX];
    uint32_t lanes_count;
    struct sim_job jobs[SIM_JOBS_MAX];
    uint32_t tokens;
    uint32_t stops_left, moves_left, handovers_left, cuts_left, lane_deaths_left,
        worker_deaths_left;
    uint64_t next_accident_turn;
};

/* --- sim.c --- */

uint64_t sim_now_ns(const struct sim *sim);
/* Returns a random number from 0 to below-1. */
uint64_t sim_draw(struct sim *sim, uint64_t below);
bool sim_chance(struct sim *sim, uint32_t one_in);
/* Adds a value to the transcript. */
void sim_note(struct sim *sim, uint64_t what);
void sim_fail(const struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
#define sim_require(sim, condition, ...)  \
    do {                                  \
        if (!(condition))                 \
            sim_fail((sim), __VA_ARGS__); \
    } while (0)

/* --- sim_coordinator.c --- */

void coordinator_start_lane(struct sim *sim);
void coordinator_place_job(struct sim *sim, struct sim_job *job);
/* Sends routes and orders to drop pieces between two turns. Returns whether anything was sent. */
bool coordinator_turn(struct sim *sim);
/* Returns a ticket that the lane accepts. False: the lane is dead or does not know the job. */
bool coordinator_grant(struct sim *sim, const struct sim_worker *w, uint32_t lane,
                       struct record_connect *ret_ticket);
bool sim_lane_serves(const struct sim_lane *lane, const struct sim_piece *piece);
/* Returns another running lane than `but`; SIM_NOWHERE: none. */
uint32_t choose_lane(struct sim *sim, uint32_t but);
/* Places the piece on a lane under this epoch. The lane restores the state from the workers. */
void place_on(struct sim *sim, const struct sim_piece *piece, uint32_t lane, uint32_t epoch);
/* Sends the piece's lane and epoch to the workers, each of which receives them at another time. */
void tell_route(struct sim_piece *piece, bool is_released);
/* Assigns another lane to the piece if its lane is dead and the death was detected. */
void coordinator_recover(struct sim *sim, struct sim_piece *piece);
bool job_is_finished(const struct sim_job *job);

/* --- sim_move.c --- */

void move_begin(struct sim *sim, struct sim_piece *piece);
/* Continues the move of a piece if the next step is due. Returns whether a move is in progress. */
bool move_turn(struct sim *sim, struct sim_piece *piece);
static inline bool move_is_under_way(const struct sim_piece *piece)
{
    return piece->move.state != MIGRATOR_C_IDLE;
}
/* Reports the loss of the source or the target to the move, which may end. */
void move_hear_losses(struct sim *sim, struct sim_piece *piece);

/* --- sim_fate.c --- */

/* Performs the kills, stops and moves that are due. Returns whether any was performed. */
bool fate_turn(struct sim *sim);
/* Simulates kill -9 of the lane's process: some of its packets may arrive, and its memory is
 * lost. */
void fate_bury(struct sim *sim, struct sim_lane *lane);
/* Records a failure that the test has caused: the job must end with an error. */
void fate_doom(struct sim *sim, struct sim_job *job, uint32_t victim);

/* --- sim_worker.c --- */

void worker_open_memory(struct sim_worker *w);
/* Handles the worker's events, then lets the worker act. Returns whether anything happened. */
bool worker_turn(struct sim_worker *w);
bool worker_is_finished(const struct sim_worker *w);

/* --- sim_copy.c --- */

bool copy_is_kept(const struct sim *sim, const struct sim_piece *piece);
uint64_t copy_lay_out(const struct sim *sim, struct sim_piece *piece, uint64_t at);
/* Sends the address of the copy to a lane, before any other message about the piece. -EAGAIN: the
 * send queue is full. */
int copy_tell(struct sim_worker *w, const struct sim_piece *piece);

/* --- sim_check.c --- */

struct sim_plan plan_of(const struct sim_piece *piece, uint64_t round);
bool plan_has_input(struct sim_plan plan, uint32_t rank);
bool plan_has_output(struct sim_plan plan, uint32_t rank);
void *input_at(const struct sim_worker *w, const struct sim_piece *piece, uint64_t round);
void *landing_at(const struct sim_worker *w, const struct sim_piece *piece, uint64_t round);
void check_prepare_memory(struct sim_worker *w, size_t input_bytes, size_t landing_bytes);
/* Writes the gradient of a round, and other bytes to the landing area. */
void check_begin(struct sim_worker *w, struct sim_piece *piece, uint64_t round);
/* Checks a received result: every element, and that the input is unchanged (S1). Returns the round
 * of the result, which is a later one for a late worker of a partial quorum. */
uint64_t check_landed(struct sim_worker *w, struct sim_piece *piece, uint64_t round);
/* Checks the commit of a round (S2), then overwrites the memory of the round with garbage. */
void check_committed(struct sim_worker *w, struct sim_piece *piece, uint64_t round);
/* Overwrites the memory of the round with garbage, as a worker may after COMMIT. */
void spoil(struct sim_worker *w, struct sim_piece *piece, uint64_t round);
/* Checks invariants between any two turns. */
void check_world(struct sim *sim);
/* Checks that a lane without jobs has freed all memory (S5). */
void check_lane_is_empty(struct sim *sim, const struct sim_lane *lane);

/* Returns an element of a worker's gradient. */
float gradient_of(const struct sim_piece *piece, uint64_t round, uint32_t rank, uint64_t element);

/* --- sim_owner.c --- */

void check_owners(struct sim *sim, struct sim_job *job);
/* Prints the state of lanes for the piece. */
void explain_owner(const struct sim *sim, const struct sim_piece *piece);
/* Checks the piece after a move was undone (S11). */
void check_stays(struct sim *sim, const struct sim_piece *piece, uint32_t source);

/* --- sim_kinds.c --- */

void kind_draw(struct sim *sim, struct sim_piece *piece);
void kind_free(struct sim_piece *piece);
struct lane_terms kind_terms(const struct sim_piece *piece);
struct update_settings kind_settings(const struct sim_piece *piece, uint64_t round);
bool kind_is_loose(const struct sim_piece *piece);
bool kind_has_state(const struct sim_piece *piece);
bool kind_is_stranded(const struct sim_piece *piece);
bool kind_is_open(const struct sim_piece *piece);
/* Returns whether the result of the round contains the rank's gradient. */
bool kind_takes(const struct sim_piece *piece, uint64_t round, uint32_t rank);
void kind_update(struct sim_piece *piece, uint64_t round, bool is_step, float *mean);
float kind_contribution(const struct sim_piece *piece, uint64_t round, uint32_t rank,
                        uint64_t element);
/* Records the rounds that are committed when a round begins. The result of this round must contain
 * them. */
void kind_begin(struct sim_worker *w, const struct sim_piece *piece);
/* Returns the round whose result is in the landing area, for kinds with an open set; 0: none. */
uint64_t kind_result_round(const struct sim_worker *w, struct sim_piece *piece, uint64_t round);

/* --- sim_memory.c: wraps the lanes' arenas --- */

void memory_start(void);
/* Makes the n-th allocation from now on fail; 0: none fails. */
void memory_fail(uint64_t n);
uint64_t memory_allocations(void);
/* Returns the number of allocations that were not freed. */
size_t memory_blocks(const struct arena *arena);
size_t memory_bytes(const struct arena *arena);

#endif
