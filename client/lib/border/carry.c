/* Hands values over from the lowest member of the former stage to the ranks that were not in this
 * stage. The hand-over is a broadcast over a hidden tensor of these ranks, so each new rank gets
 * one write of a lane. In FlexPS values go directly from worker to worker; gradpool sends them over
 * a lane. Owns the hand-over of a call that has timed out: the next call continues this hand-over,
 * because its broadcast is open on this rank, and other ranks may already have completed the
 * broadcast. Also owns the memory of the broadcasts, which all hand-overs of the job use: the first
 * access of a process or a lane to a new page costs more than the copy of the page. */
#include "client/lib/border/internal.h"
#include "client/lib/declare/declare.h"
#include "client/lib/link/copy.h"
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
    /* the giver, and the ranks that were not in the former stage */
    uint32_t ranks[RANKS_WORDS * 64];
    uint64_t bytes;
    char name[256];
    /* memory of gp_alloc() for the values; kept for the next hand-over. NULL: none is allocated */
    void *buffer;
    uint64_t buffer_bytes;
    void *memory; /* memory of the broadcast: the buffer, or the memory of the only item */
    /* request of the broadcast; NULL: the broadcast has not begun, or has ended */
    gp_request *request;
    struct err failure; /* error with which the broadcast has ended; code 0: none */
};

uint64_t carry_bytes(const gp_stage_spec *spec)
{
    uint64_t bytes = 0;
    for (size_t i = 0; spec && i < spec->carry_count; i++)
        bytes += spec->carry[i].bytes;
    return bytes;
}

/* Finds the ranks of the hand-over. Returns whether this rank is one of these ranks. */
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
    size_t streams_from = copy_streams_from(h->bytes);
    char *at = h->buffer;
    if (h->memory != h->buffer)
        return;
    for (size_t i = 0; i < spec->carry_count; at += spec->carry[i++].bytes) {
        const gp_carry *item = &spec->carry[i];
        if (item->bytes > 0)
            copy_values(gives ? at : item->values, gives ? item->values : at, item->bytes,
                        streams_from);
    }
}

/* Returns whether lanes can use the caller's memory: one item of whole words, from gp_alloc(). */
static bool hand_over_may_lend(const struct hand_over *h, const struct stage_call *call)
{
    struct slab_place place;
    if (call->spec->carry_count != 1 || h->bytes % WORD_BYTES > 0)
        return false;
    pthread_mutex_lock(&call->job->lock);
    bool is_lent = slabs_find(&call->job->slabs, call->spec->carry->values, h->bytes, &place);
    pthread_mutex_unlock(&call->job->lock);
    return is_lent;
}

/* Allocates the buffer, unless the buffer of an earlier hand-over is long enough. */
static int hand_over_allocate(struct hand_over *h, const struct stage_call *call)
{
    uint64_t bytes = h->bytes + WORD_BYTES;
    if (h->buffer_bytes >= bytes)
        return 0;
    gp_free(call->job, h->buffer);
    h->buffer = NULL;
    h->buffer_bytes = 0;
    int error = gp_alloc(call->job, (size_t)bytes, &h->buffer);
    if (error == 0)
        h->buffer_bytes = bytes;
    return error;
}

/* Chooses the memory of the broadcast. On the giver this memory then has the values. */
static int hand_over_fill(struct hand_over *h, const struct stage_call *call)
{
    h->memory = call->spec->carry->values;
    if (hand_over_may_lend(h, call))
        return 0;
    int error = hand_over_allocate(h, call);
    if (error < 0)
        return error;
    h->memory = h->buffer;
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
    int error = hand_over_fill(h, call);
    if (error == 0)
        error = declare_hidden(call->job, &spec, hand_over_left_ns(call), &tensor);
    return error == 0 ? gp_broadcast(tensor, h->memory, h->giver, &h->request) : error;
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

/* Runs the broadcast. After an error a lane may still use the memory; the memory is not used again,
 * because no further hand-over of the job begins. */
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
    return 0;
}

static void hand_over_begin(const struct stage_call *call, const struct stage_answer *answer)
{
    struct hand_over *h = (struct hand_over *)(call->stage + 1);
    *h = (struct hand_over){.answer = *answer,
                            .bytes = carry_bytes(call->spec),
                            .buffer = h->buffer,
                            .buffer_bytes = h->buffer_bytes};
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

/* Refuses other memory than that of the open broadcast, which a lane uses in place. */
static int carry_check_memory(const struct hand_over *h, const struct stage_call *call)
{
    if (!h || !h->request || h->memory == h->buffer || h->memory == call->spec->carry->values)
        return 0;
    return client_error(-EINVAL,
                        "gp_stage_next: a lane uses the carry of the first call for stage '%s' of "
                        "job '%.127s' in place; repeat the call with the same memory",
                        h->stage, call->job->name);
}

int carry_check(const struct stage_call *call)
{
    const struct hand_over *h = call->stage->hand_over;
    bool is_same = !h || (call->spec && strcmp(call->spec->name, h->stage) == 0 &&
                          carry_bytes(call->spec) == h->bytes);
    return is_same ? carry_check_memory(h, call)
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
