/* Hands values over from the lowest member of the former stage to the ranks that were not in this
 * stage. The hand-over is a broadcast over a hidden tensor of these ranks, so each new rank gets
 * one write of a lane. In FlexPS values go directly from worker to worker; gradpool sends them over
 * a lane. Owns the hand-over of a call that has timed out: the next call continues this hand-over,
 * because its broadcast is open on this rank, and other ranks may already have completed the
 * broadcast. */
#include "client/lib/border/internal.h"
#include "client/lib/declare/declare.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"
#include "svc/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 4

struct hand_over {
    struct stage_answer answer; /* the stage that begins */
    char stage[GP_STAGE_NAME_BYTES_MAX + 1];
    uint32_t giver, count;
    uint32_t ranks[RANKS_WORDS * 64]; /* the giver and the new ranks */
    uint64_t bytes;
    char name[256];
    void *buffer; /* NULL: not allocated yet */
    /* request of the broadcast; NULL: the broadcast has not begun, or has ended */
    gp_request *request;
    struct err failure; /* error with which the broadcast has ended */
};

uint64_t carry_bytes(const gp_stage_spec *spec)
{
    uint64_t bytes = 0;
    for (size_t i = 0; spec && i < spec->carry_count; i++)
        bytes += spec->carry[i].bytes;
    return bytes;
}

/* Finds the ranks of the hand-over. Returns whether this rank takes part. */
static bool hand_over_find_ranks(struct hand_over *h, const struct stage_call *call)
{
    const uint64_t *former = call->stage->members, *members = h->answer.ranks;
    bool is_mine = false;
    h->giver = 0;
    while (!ranks_have(former, h->giver))
        h->giver++;
    for (uint32_t rank = 0; rank < call->job->workers; rank++) {
        bool is_new = ranks_have(members, rank) && !ranks_have(former, rank);
        if (!is_new && rank != h->giver)
            continue;
        h->ranks[h->count++] = rank;
        is_mine |= rank == call->job->rank;
    }
    return is_mine && h->count > 1;
}

/* Writes the name of the hidden tensor. The name contains the ranks and the number of bytes: a
 * later hand-over of the same ranks and size uses the same tensor. */
static void hand_over_name(struct hand_over *h)
{
    uint64_t set[RANKS_WORDS] = {0};
    int words = RANKS_WORDS;
    for (uint32_t i = 0; i < h->count; i++)
        ranks_add(set, h->ranks[i]);
    while (words > 1 && set[words - 1] == 0)
        words--;
    *h->name = '\0';
    text_append(h->name, sizeof h->name, NAME_RESERVED "carry.%" PRIu64 ".", h->bytes);
    for (int i = 0; i < words; i++)
        text_append(h->name, sizeof h->name, "%" PRIx64 "%s", set[i], i + 1 < words ? "." : "");
}

static void hand_over_copy(const struct hand_over *h, const gp_stage_spec *spec, bool gives)
{
    char *at = h->buffer;
    for (size_t i = 0; i < spec->carry_count; at += spec->carry[i++].bytes) {
        const gp_carry *item = &spec->carry[i];
        if (item->bytes > 0)
            memcpy(gives ? at : item->values, gives ? item->values : at, item->bytes);
    }
}

static int hand_over_allocate(struct hand_over *h, const struct stage_call *call)
{
    int error = h->buffer ? 0 : gp_alloc(call->job, (size_t)(h->bytes + WORD_BYTES), &h->buffer);
    if (error < 0)
        return error;
    memset((char *)h->buffer + h->bytes, 0, WORD_BYTES);
    if (call->job->rank == h->giver)
        hand_over_copy(h, call->spec, true);
    return 0;
}

/* Returns the time until the deadline of the call, at least 1 ms. */
static uint64_t hand_over_left_ns(const struct stage_call *call)
{
    uint64_t now_ns = clock_now_ns();
    return call->deadline_ns > now_ns + NS_PER_MS ? call->deadline_ns - now_ns : NS_PER_MS;
}

/* Begins the broadcast. After an error the next call begins it again. */
static int hand_over_post(struct hand_over *h, const struct stage_call *call)
{
    gp_tensor_spec spec = {.name = h->name,
                           .dtype = GP_I32,
                           .elements = (h->bytes + WORD_BYTES - 1) / WORD_BYTES,
                           .ranks = h->ranks,
                           .ranks_count = h->count};
    struct gp_tensor *tensor;
    int error = hand_over_allocate(h, call);
    if (error == 0)
        error = declare_hidden(call->job, &spec, hand_over_left_ns(call), &tensor);
    return error == 0 ? gp_broadcast(tensor, h->buffer, h->giver, &h->request) : error;
}

static int hand_over_name_late(const struct hand_over *h, const struct stage_call *call)
{
    char why[ERR_TEXT_BYTES];
    snprintf(why, sizeof why, "%s", gp_last_error());
    return client_error(-ETIMEDOUT,
                        "job '%.127s': the hand-over from rank %u before stage '%s' is not over "
                        "after %" PRIu64 " ms: %.200s; call gp_stage_next() again with the same "
                        "stage to continue",
                        call->job->name, h->giver, h->stage, call->timeout_ns / NS_PER_MS, why);
}

/* Stores the error of the broadcast, because the values can no longer arrive. */
static int hand_over_fail(struct hand_over *h, const struct stage_call *call, int error)
{
    err_set(&h->failure, error,
            "job '%.127s': the hand-over from rank %u before stage '%s' has failed: %.300s; start "
            "the job again",
            call->job->name, h->giver, h->stage, gp_last_error());
    return client_error_from(&h->failure);
}

static int hand_over_wait(struct hand_over *h, const struct stage_call *call)
{
    int error = gp_wait(h->request, (int)(hand_over_left_ns(call) / NS_PER_MS));
    if (error == -ETIMEDOUT)
        return error;
    h->request = NULL;
    return error < 0 ? hand_over_fail(h, call, error) : 0;
}

/* Runs the broadcast. After an error a lane may still use the buffer, so the buffer is then kept
 * until the end of the job. */
static int hand_over_run(struct hand_over *h, const struct stage_call *call)
{
    int error = h->failure.code ? client_error_from(&h->failure) : 0;
    if (error == 0 && !h->request)
        error = hand_over_post(h, call);
    if (error == 0)
        error = hand_over_wait(h, call);
    if (error == -ETIMEDOUT)
        return hand_over_name_late(h, call);
    if (error < 0)
        return error;
    if (call->job->rank != h->giver)
        hand_over_copy(h, call->spec, false);
    gp_free(call->job, h->buffer);
    return 0;
}

static void hand_over_begin(const struct stage_call *call, const struct stage_answer *answer)
{
    struct hand_over *h = (struct hand_over *)(call->stage + 1);
    *h = (struct hand_over){.answer = *answer, .bytes = carry_bytes(call->spec)};
    if (h->bytes == 0 || !hand_over_find_ranks(h, call))
        return;
    snprintf(h->stage, sizeof h->stage, "%s", call->spec->name);
    hand_over_name(h);
    call->stage->hand_over = h;
}

struct job_stage *carry_create_stage(void)
{
    return calloc(1, sizeof(struct job_stage) + sizeof(struct hand_over));
}

bool carry_is_open(const struct stage_call *call) { return call->stage->hand_over; }

int carry_check(const struct stage_call *call)
{
    const struct hand_over *h = call->stage->hand_over;
    bool is_same = !h || (call->spec && strcmp(call->spec->name, h->stage) == 0 &&
                          carry_bytes(call->spec) == h->bytes);
    return is_same ? 0
                   : client_error(-EINVAL,
                                  "gp_stage_next: the hand-over before stage '%s' of job '%.127s' "
                                  "is not over; repeat the call for stage '%s' with a carry of "
                                  "%" PRIu64 " bytes",
                                  h->stage, call->job->name, h->stage, h->bytes);
}

int carry_hand_over(const struct stage_call *call, struct stage_answer *answer)
{
    struct job_stage *stage = call->stage;
    if (!stage->hand_over)
        hand_over_begin(call, answer);
    if (!stage->hand_over)
        return 0;
    *answer = stage->hand_over->answer;
    stage->is_carrying = true;
    int error = hand_over_run(stage->hand_over, call);
    stage->is_carrying = false;
    if (error == 0)
        stage->hand_over = NULL;
    return error;
}
