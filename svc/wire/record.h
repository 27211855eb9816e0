/* The records that lane and worker send each other on a data connection. They have fixed sizes, are
 * little-endian, and are fabric messages. The arrival of a result is reported by the 32-bit word of
 * its last write (FABRIC_EVENT_WORD). svc/wire/README.md: the life of a round (W1 to W17).
 *
 * The reader calls record_check() before it uses any byte of a record. */
#ifndef GRADPOOL_WIRE_RECORD_H
#define GRADPOOL_WIRE_RECORD_H

#include "svc/wire/ranks.h"
#include "svc/wire/record_copy.h"
#include "svc/wire/record_set.h"
#include "svc/wire/table/record_rows.h"

#include <stddef.h>
#include <stdint.h>

#define RECORD_TEXT_BYTES 100
#define RECORD_OUTPUTS_MAX 1
#define RECORD_COMMIT_WORDS_MAX 28
#define RECORD_TOKEN_BYTES 16

enum record_kind {
    RECORD_READY = 1, /* worker -> lane: the input of (piece, round) may be read */
    /* lane -> worker: every worker has these results; input and landing area are free */
    RECORD_COMMIT = 2,
    /* lane -> worker: a request has failed; with RECORD_WORD_NONE, the job has failed */
    RECORD_ERROR = 3,
    RECORD_QUERY = 4,   /* worker -> lane: requests the ranks for which a request waits */
    RECORD_MISSING = 5, /* lane -> worker: the ranks that have not announced the round */
    RECORD_TICKET = 6,  /* lane -> worker: the ticket for the next connection */
    RECORD_LEAVE = 7,   /* worker -> lane: goodbye; the connection closes afterwards */
    /* lane -> worker: the round was closed before this worker's announcement arrived; the landing
     * area has the newest result, and the input was not read (W12) */
    RECORD_CLOSED = 8,
    /* lane -> worker -> other lanes: the set of a round, which are the ranks with inputs (W13) */
    RECORD_CHOSEN = 9,
    /* worker -> lane: settings of the updates that the worker announces from now on (W14) */
    RECORD_SETTINGS = 10,
    RECORD_BACKUP = 11, /* worker -> lane: the place for a copy of a piece's state (W17) */
    /* lane -> worker: the copy is complete, and receives all later states (W17) */
    RECORD_BACKED = 12,
    /* The next four records are for jobs with backup workers (W22). PASSED, leader lane -> ranks
     * outside the set of a round: contains the set, or the takers of the round. */
    RECORD_PASSED = 13,
    /* worker outside a set -> leader lane: the results have landed; the answer is CLOSED */
    RECORD_LANDED = 14,
    /* leader lane -> worker: another gradient on the same parameters is wanted */
    RECORD_GO_ON = 15,
    /* lane -> lowest rank of a set -> leader lane: sums over a sample of the round's gradients */
    RECORD_MEASURE = 16,
    /* The next four records are for tables (W25). ROWS, worker -> lane: a pull or push of rows. */
    RECORD_ROWS = 17,
    RECORD_CLOCK = 18, /* worker -> lane: a clock of tables has ended; or settings of a table */
    /* lane -> worker: smallest clock of a table's members; or ranks that are behind a clock */
    RECORD_CLOCKS = 19,
    RECORD_TAKEN = 20,  /* replica lane -> owner: the replica lane has applied blocks of the log */
    RECORD_RING = 21,   /* replica lane -> owner: the memory of the ring for a log */
    RECORD_LOGGED = 22, /* owner -> replica lane: blocks of the log have landed */
};

/* A replica holder has a number in place of a rank. This number is the sum of this bit and the
 * number of the aggregator. */
#define RECORD_HOLDER 0x80000000u

#define RECORD_WORD_NONE 0xffffffffu
#define RECORD_ROUND_NONE 0
#define RECORD_STALL_NS 65536
#define RECORD_WEIGHT 1 /* default weight of a gradient, if its rank has set no other weight */
/* Largest weight. Each weight up to this maximum is exact in f32, and the sum over all ranks fits
 * into 32 bits. */
#define RECORD_WEIGHT_MAX (1u << 22)
#define RECORD_GRADIENT 1 /* number of a rank's first gradient in a round */
/* Largest valid number of a round. The limit prevents overflows in sums of two round numbers. */
#define RECORD_ROUND_MOST (UINT64_MAX / 2)

enum record_operation {
    RECORD_SUM = 1,
    RECORD_MEAN = 2,
    RECORD_BROADCAST = 3,
    RECORD_BARRIER = 4,
    RECORD_MIN = 5,
    RECORD_MAX = 6,
    RECORD_PRODUCT = 7,
    RECORD_GATHER = 8,
    RECORD_ALL_TO_ALL = 9,
    /* the lane sums all inputs, and each rank gets one block of the sum */
    RECORD_REDUCE_SCATTER = 10,
    RECORD_SEND = 11,    /* one rank sends to another rank; `root` is the sender */
    RECORD_UPDATE = 12,  /* the lane computes new parameters from the mean of the gradients (W14) */
    RECORD_SAVE = 13,    /* a rank with a landing area receives the parameters, then the moments */
    RECORD_RESTORE = 14, /* the input of the root is the state; all ranks receive the parameters */
};

/* Standing of a worker, sent with READY (W5). HOLDS, IDLE and KEEPS report earlier rounds, for
 * example to a new owner of the piece. */
enum record_standing {
    RECORD_ANNOUNCE = 0, /* the worker's input of this round is lent */
    /* the whole result of this round is in the landing area; the round is not committed */
    RECORD_HOLDS = 1,
    RECORD_IDLE = 2, /* this round is committed at the worker; no memory is lent */
    /* the whole result of this round is in the landing area, and a record of the next round
     * follows */
    RECORD_KEEPS = 3,
    /* the worker is new, and enters after the round that the lane names in CLOSED (W15) */
    RECORD_ENTERS = 4,
    /* the worker's gradient was dropped or late, so the worker requests the result of this round,
     * and lends no input (W22) */
    RECORD_TAKES = 5,
    RECORD_FAILED = 6, /* an earlier owner has sent -EOWNERDEAD; no memory is lent (L80) */
};

/* A run of `count` outputs. If `source` is RECORD_SOURCE_RESULT, the run has one output, which is
 * the result. Otherwise the outputs are copies of inputs. The operation sends this worker the
 * inputs of some ranks; output i is the i-th of these inputs, counted from rank `source` on. Output
 * i is written at offset + i * stride of the region. A sum, a broadcast and a gather need one run
 * each. In a gather `source` is the first rank in the tensor's set. */
#define RECORD_SOURCE_RESULT 0xffffffffu
struct record_output {
    uint32_t source;
    uint32_t count;
    uint32_t region;
    uint32_t reserved; /* always 0 */
    uint64_t offset;   /* bytes */
    uint64_t bytes;
    uint64_t stride; /* distance from one output to the next; 0 if there is only one */
};

struct record_ready {
    uint8_t kind;      /* RECORD_READY */
    uint8_t operation; /* a value of enum record_operation */
    uint8_t dtype;     /* dtype of the tensor, a value of enum reduce_dtype */
    uint8_t standing;  /* a value of enum record_standing */
    uint16_t outputs;  /* 0 .. RECORD_OUTPUTS_MAX */
    /* time for which the worker has waited for this lane since its previous report, in units of
     * RECORD_STALL_NS (W18) */
    uint16_t stalled;
    uint32_t piece; /* number that the coordinator gave to this part of a tensor */
    /* completion word that the lane returns with the result: 24 bits for the slot of the request,
     * and 8 bits for the generation of the slot */
    uint32_t word;
    uint64_t round; /* counted for each tensor, from 1 */
    uint32_t epoch; /* epoch of the route that the worker has */
    /* Broadcast: rank that supplies the input. All other operations, in a job with backup workers:
     * low half of the number of the job's round. */
    uint32_t root;
    uint32_t input_region;
    uint32_t payload_bytes; /* 0, or input_bytes: a copy of the input follows (W6) */
    uint64_t input_offset;  /* bytes */
    /* length of one block; 0 for a barrier, and if only the root supplies an input */
    uint64_t input_bytes;
    /* distance from one block to the next, if the input has a block for each rank, or a slot for
     * each gradient of this rank (W22) */
    uint64_t input_stride;
    float loss;        /* loss of this iteration; NaN: unknown */
    uint32_t priority; /* the rounds of a job with larger values are served first */
    struct record_output output[RECORD_OUTPUTS_MAX];
    /* weight of the gradient in a mean or an update; 0: the gradient is not read. RECORD_WEIGHT in
     * all other operations */
    uint32_t weight;
    uint8_t gradient;    /* the rank's gradients 1 to `gradient` of the round may be read */
    uint8_t reserved[3]; /* always 0 */
};
_Static_assert(sizeof(struct record_ready) == 120, "one ring record, no holes");
_Static_assert(RECORD_WEIGHT_MAX <= UINT32_MAX / (RANKS_WORDS * 64), "sums of weights fit");

struct record_commit {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t count;
    uint32_t words[RECORD_COMMIT_WORDS_MAX];
};
_Static_assert(sizeof(struct record_commit) == 120, "one ring record, no holes");

struct record_error {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t word; /* RECORD_WORD_NONE: every request of the job */
    int32_t code;  /* negative errno */
    uint32_t text_bytes;
    char text[RECORD_TEXT_BYTES]; /* the text has no terminating zero */
    uint32_t padding;
};
_Static_assert(sizeof(struct record_error) == 120, "one ring record, no holes");

/* Requests the numbers of the ranks that have not announced `round`. A worker with standing ENTERS
 * sends round 0, and requests the ranks that delay the open round. For a table the worker requests
 * the ranks that have not reached a clock, and the lane answers with CLOCKS. */
struct record_query {
    uint8_t kind;
    uint8_t is_of_table; /* `piece` is the number of a table, and `round` a clock */
    uint8_t reserved[2];
    uint32_t word;
    uint32_t piece;
    uint32_t padding;
    uint64_t round;
};

struct record_missing {
    uint8_t kind;
    /* 1: these ranks have announced the round, but reads or writes of their memory do not
     * complete */
    uint8_t have_pushed;
    uint8_t reserved[2];
    uint32_t word;
    uint64_t round; /* the round that is open on the lane */
    uint64_t ranks[RECORD_MISSING_WORDS];
};
_Static_assert(sizeof(struct record_missing) == 112, "one ring record, no holes");

/* The ticket of a connection (W7), issued by the coordinator or, on a live connection, by the lane.
 * A ticket is valid for one connection. The token is a secret. */
struct record_connect {
    uint32_t magic; /* RECORD_MAGIC */
    uint32_t job;
    uint32_t rank;
    uint32_t lane;
    uint64_t incarnation; /* random number of the aggregator process */
    uint8_t token[RECORD_TOKEN_BYTES];
    uint64_t entered; /* membership at the join, below 2^32; 0: initial rank, replica holder */
};
_Static_assert(sizeof(struct record_connect) == 48, "fits verbs connect data");
#define RECORD_MAGIC 0x31505247u /* "GRP1": data-plane version 1 */

struct record_ticket {
    uint8_t kind;
    uint8_t reserved[7];
    struct record_connect connect;
};

struct record_leave {
    uint8_t kind;
    uint8_t
        /* 1: the worker leaves because the job has failed. Other ranks receive the failure of the
         * job, and not an error about this goodbye */
        after_failure;
    uint8_t reserved[6];
};

struct record_closed {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t word;
    /* round of the result; the worker continues with the next round. 0: a worker that enters begins
     * with the first round */
    uint64_t round;
};

/* Settings of updates. A rule ignores the settings that it does not use. The lane checks the
 * values. */
struct record_settings {
    uint8_t kind;
    uint8_t reserved[7];
    double rate, weight_decay;
    double momentum, dampening;
    double beta1, beta2, epsilon;
    uint64_t steps; /* RESTORE: update count of the state */
};
_Static_assert(sizeof(struct record_settings) == 72, "no holes");

union record {
    uint8_t kind;
    struct record_ready ready;
    struct record_commit commit;
    struct record_error error;
    struct record_query query;
    struct record_missing missing;
    struct record_ticket ticket;
    struct record_leave leave;
    struct record_closed closed;
    struct record_chosen chosen;
    struct record_settings settings;
    struct record_backup backup;
    struct record_backed backed;
    struct record_landed landed;
    struct record_go_on go_on;
    struct record_measure measure;
    struct record_rows rows;
    struct record_clock clock;
    struct record_clocks clocks;
    struct record_taken taken;
    struct record_ring ring;
    struct record_logged logged;
};

/* Copies the record to `ret_record`, and checks all fields that can be checked without the state of
 * a job, lane or connection: kind, length for this kind, counts, reserved fields, and overflow of
 * areas. Only a READY may be followed by a payload of payload_bytes bytes, which begins at `data` +
 * `ret_record_bytes`. Returns 0, or -EBADMSG if the record is invalid; `ret_record` is then
 * undefined. Cost: one copy, no allocation. */
int record_check(const void *data, size_t bytes, union record *ret_record,
                 size_t *ret_record_bytes);

/* Returns the number of bytes of a record of this kind, as sent. */
size_t record_bytes(const union record *record);

/* Fills an ERROR. A text longer than RECORD_TEXT_BYTES is shortened, and ends in "...". */
void record_error_init(struct record_error *ret_error, uint32_t word, int code, const char *text);

#endif
