/* Functions that the files of client/lib/border share. */
#ifndef GRADPOOL_CLIENT_LIB_BORDER_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_BORDER_INTERNAL_H

#include "client/lib/stage/stage.h"
#include "svc/base/err.h"

/* One call on stages, with its deadline. */
struct stage_call {
    struct gp_job *job;
    struct job_stage *stage;
    const gp_stage_spec *spec; /* NULL: no stage */
    uint64_t timeout_ns, deadline_ns;
};

/* Answer of the coordinator. */
struct stage_answer {
    uint64_t number, first_clock, cursor;
    uint64_t ranks[RANKS_WORDS];
    uint32_t trial_steps;
    bool continues;
};

/* Members of a stage in a recording. */
struct stage_line {
    uint64_t ranks[RANKS_WORDS];
    uint32_t trial_steps;
    bool is_there;
};

/* border.c: sends the end of this rank's part to the coordinator (`ends`), or requests the next
 * stage. Called without the job's lock. */
int border_ask(const struct stage_call *call, bool ends, const struct stage_line *line,
               struct stage_answer *ret_answer);
/* Waits until the rounds of this rank are committed, for all tensors that follow the stages.
 * Returns 0, -ETIMEDOUT, or the failure of the job. */
int border_await_rounds(const struct stage_call *call);
/* Ends the open clock if it has pushes, ends this rank's part, and waits until all requests of the
 * rank have ended. Returns 0, 1 if the stage continues, or an error. */
int border_end(const struct stage_call *call);

/* carry.c: sends the values of the call's spec to the members of the next stage (`answer`) that are
 * not in the former stage. After -ETIMEDOUT the hand-over stays open. The next call continues this
 * hand-over, and sets `answer` to the stage of the hand-over. */
int carry_hand_over(const struct stage_call *call, struct stage_answer *answer);
/* Allocates a stage, with memory for a hand-over behind it; one free() frees both. NULL: no memory
 * is left. */
struct job_stage *carry_create_stage(void);
bool carry_is_open(const struct stage_call *call);
/* Returns 0, or -EINVAL with a text if the call is not for the stage of the open hand-over. */
int carry_check(const struct stage_call *call);
/* Returns the number of bytes of all items. */
uint64_t carry_bytes(const gp_stage_spec *spec);

/* script.c: rank 0 records each stage in the file GRADPOOL_STAGES_RECORD, and reads the ranks of
 * each stage from the file GRADPOOL_STAGES_REPLAY. */

/* Finds the next stage in the replay. */
int script_next(const struct stage_call *call, struct stage_line *ret_line);
/* Writes the present stage. */
int script_note(const struct gp_job *job, const struct job_stage *stage);

#endif
