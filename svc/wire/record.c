/* Checks the records of a data connection, and returns their lengths. Checks that need the state of
 * a job, a lane or a connection are made by the owner of that state. Never allocates, and never
 * asserts on bytes of a peer (W9). */
#include "svc/wire/record.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* largest errno of the kernel; libfabric's own codes are below this number, too */
#define ERRNO_MOST 4095

static const uint16_t kind_bytes[] = {
    [RECORD_READY] = sizeof(struct record_ready),
    [RECORD_COMMIT] = sizeof(struct record_commit),
    [RECORD_ERROR] = sizeof(struct record_error),
    [RECORD_QUERY] = sizeof(struct record_query),
    [RECORD_MISSING] = sizeof(struct record_missing),
    [RECORD_TICKET] = sizeof(struct record_ticket),
    [RECORD_LEAVE] = sizeof(struct record_leave),
    [RECORD_CLOSED] = sizeof(struct record_closed),
    [RECORD_CHOSEN] = sizeof(struct record_chosen),
    [RECORD_SETTINGS] = sizeof(struct record_settings),
    [RECORD_BACKUP] = sizeof(struct record_backup),
    [RECORD_BACKED] = sizeof(struct record_backed),
    [RECORD_PASSED] = sizeof(struct record_chosen),
    [RECORD_LANDED] = sizeof(struct record_landed),
    [RECORD_GO_ON] = sizeof(struct record_go_on),
    [RECORD_MEASURE] = sizeof(struct record_measure),
    [RECORD_ROWS] = sizeof(struct record_rows),
    [RECORD_CLOCK] = sizeof(struct record_clock),
    [RECORD_CLOCKS] = sizeof(struct record_clocks),
    [RECORD_TAKEN] = sizeof(struct record_taken),
    [RECORD_RING] = sizeof(struct record_ring),
    [RECORD_LOGGED] = sizeof(struct record_logged),
};

static size_t bytes_of_kind(uint8_t kind)
{
    return kind < sizeof(kind_bytes) / sizeof(kind_bytes[0]) ? kind_bytes[kind] : 0;
}

static bool is_zero(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++)
        if (p[i])
            return false;
    return true;
}

static bool extent_fits(uint64_t offset, uint64_t bytes)
{
    uint64_t end;
    return !__builtin_add_overflow(offset, bytes, &end);
}

/* Returns whether `count` blocks end below 2^64 and do not overlap. The stride of a single block is
 * 0. */
static bool blocks_fit(uint64_t offset, uint64_t bytes, uint64_t stride, uint32_t count)
{
    uint64_t last;
    if (count == 1 ? stride != 0 : stride < bytes)
        return false;
    return !__builtin_mul_overflow(stride, count - 1, &last) &&
           !__builtin_add_overflow(offset, last, &last) && extent_fits(last, bytes);
}

static bool output_is_sound(const struct record_output *o)
{
    if (o->reserved != 0 || o->count == 0)
        return false;
    /* In a run of inputs all ranks are below RECORD_SOURCE_RESULT. A run of a result has one
     * output. */
    if (o->source != RECORD_SOURCE_RESULT && o->source > RECORD_SOURCE_RESULT - o->count)
        return false;
    if (o->source == RECORD_SOURCE_RESULT && o->count != 1)
        return false;
    return blocks_fit(o->offset, o->bytes, o->stride, o->count);
}

static bool outputs_are_sound(const struct record_ready *r)
{
    if (r->outputs > RECORD_OUTPUTS_MAX)
        return false;
    for (size_t i = 0; i < r->outputs; i++)
        if (!output_is_sound(&r->output[i]))
            return false;
    size_t unused = RECORD_OUTPUTS_MAX - r->outputs;
    return is_zero(r->output + r->outputs, unused * sizeof(r->output[0]));
}

/* Returns whether weight and number of the gradient are valid. Only the hidden tensor, whose
 * operation is a barrier, announces more than the first gradient of a rank. */
static bool ready_tail_is_sound(const struct record_ready *r)
{
    bool is_weighed = r->operation == RECORD_MEAN || r->operation == RECORD_UPDATE;
    if (r->weight > RECORD_WEIGHT_MAX || (!is_weighed && r->weight != RECORD_WEIGHT))
        return false;
    uint8_t most = r->operation == RECORD_BARRIER ? RECORD_GRADIENTS_MAX : RECORD_GRADIENT;
    return r->gradient >= RECORD_GRADIENT && r->gradient <= most &&
           is_zero(r->reserved, sizeof(r->reserved));
}

static bool ready_is_sound(const struct record_ready *r)
{
    if (r->operation < RECORD_SUM || r->operation > RECORD_RESTORE)
        return false;
    if (r->standing > RECORD_FAILED || !ready_tail_is_sound(r))
        return false;
    /* the hidden tensor, whose operation is a barrier, has no result that could be requested */
    uint32_t wanted = r->operation == RECORD_BARRIER ? 0 : 1;
    if (r->standing == RECORD_TAKES && (r->input_bytes != 0 || r->outputs != wanted))
        return false;
    if (r->standing == RECORD_FAILED && (r->input_bytes != 0 || r->outputs != 0))
        return false;
    /* Rounds count from 1. Number 0 is valid from a worker that enters, and from an idle worker, or
     * one whose tensor has failed, before its first round. */
    bool is_none = r->round == RECORD_ROUND_NONE;
    bool lends = r->standing != RECORD_IDLE && r->standing != RECORD_FAILED;
    if (is_none != (r->standing == RECORD_ENTERS) && (!is_none || lends))
        return false;
    if (r->round > RECORD_ROUND_MOST)
        return false;
    if (r->operation == RECORD_BARRIER && r->input_bytes != 0)
        return false;
    if (r->payload_bytes != 0 && r->payload_bytes != r->input_bytes)
        return false;
    return extent_fits(r->input_offset, r->input_bytes) && outputs_are_sound(r);
}

static bool commit_is_sound(const struct record_commit *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && r->count >= 1 &&
           r->count <= RECORD_COMMIT_WORDS_MAX;
}

static bool error_is_sound(const struct record_error *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && r->padding == 0 && r->code < 0 &&
           r->code >= -ERRNO_MOST && r->text_bytes <= RECORD_TEXT_BYTES;
}

static bool query_is_sound(const struct record_query *r)
{
    if (r->is_of_table > 1 || (r->is_of_table && (r->round < 1 || r->round > RECORD_CLOCK_MOST)))
        return false;
    return is_zero(r->reserved, sizeof(r->reserved)) && r->padding == 0;
}

static bool missing_is_sound(const struct record_missing *r)
{
    return r->have_pushed <= 1 && is_zero(r->reserved, sizeof(r->reserved));
}

static bool ticket_is_sound(const struct record_ticket *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && r->connect.magic == RECORD_MAGIC &&
           r->connect.entered <= UINT32_MAX;
}

static bool leave_is_sound(const struct record_leave *r)
{
    return r->after_failure <= 1 && is_zero(r->reserved, sizeof(r->reserved));
}

static bool closed_is_sound(const struct record_closed *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && r->round <= RECORD_ROUND_MOST;
}

static bool round_is_of_job(uint64_t round) { return round >= 1 && round <= RECORD_ROUND_MOST; }

static bool set_is_sound(const struct record_chosen *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && r->reserved_2 == 0 &&
           round_is_of_job(r->round) && r->reason <= RECORD_REASON_REPLAY &&
           r->form <= RECORD_FORM_TAKERS;
}

static bool chosen_is_sound(const struct record_chosen *r)
{
    return set_is_sound(r) && r->form != RECORD_FORM_TAKERS && !is_zero(r->ranks, sizeof(r->ranks));
}

static bool passed_is_sound(const struct record_chosen *r)
{
    if (!set_is_sound(r))
        return false;
    if (r->form == RECORD_FORM_TAKERS)
        return r->reason == 0 || r->reason == RECORD_REASON_REPLAY;
    return !is_zero(r->ranks, sizeof(r->ranks));
}

static bool landed_is_sound(const struct record_landed *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && r->round <= RECORD_ROUND_MOST;
}

static bool go_on_is_sound(const struct record_go_on *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && round_is_of_job(r->round) &&
           r->gradient > RECORD_GRADIENT && r->gradient <= RECORD_GRADIENTS_MAX;
}

static bool measure_is_sound(const struct record_measure *r)
{
    return r->reserved == 0 && round_is_of_job(r->round) && r->inputs >= 1 &&
           r->inputs <= RECORD_COUNTED_RANKS * RECORD_GRADIENTS_MAX &&
           r->blocks <= RECORD_SAMPLE_BLOCKS;
}

static bool record_settings_are_sound(const struct record_settings *r)
{
    return is_zero(r->reserved, sizeof(r->reserved));
}

static bool backup_is_sound(const struct record_backup *r)
{
    if (r->rounds[0] > RECORD_ROUND_MOST || r->rounds[1] > RECORD_ROUND_MOST)
        return false;
    return is_zero(r->reserved, sizeof(r->reserved)) && r->since <= RECORD_ROUND_MOST;
}

static bool backed_is_sound(const struct record_backed *r)
{
    return is_zero(r->reserved, sizeof(r->reserved)) && r->padding == 0 &&
           r->round <= RECORD_ROUND_MOST && r->steps <= RECORD_ROUND_MOST;
}

static bool record_is_sound(const union record *r)
{
    switch (r->kind) {
    case RECORD_READY: return ready_is_sound(&r->ready);
    case RECORD_COMMIT: return commit_is_sound(&r->commit);
    case RECORD_ERROR: return error_is_sound(&r->error);
    case RECORD_QUERY: return query_is_sound(&r->query);
    case RECORD_MISSING: return missing_is_sound(&r->missing);
    case RECORD_TICKET: return ticket_is_sound(&r->ticket);
    case RECORD_LEAVE: return leave_is_sound(&r->leave);
    case RECORD_CLOSED: return closed_is_sound(&r->closed);
    case RECORD_CHOSEN: return chosen_is_sound(&r->chosen);
    case RECORD_SETTINGS: return record_settings_are_sound(&r->settings);
    case RECORD_BACKUP: return backup_is_sound(&r->backup);
    case RECORD_BACKED: return backed_is_sound(&r->backed);
    case RECORD_PASSED: return passed_is_sound(&r->chosen);
    case RECORD_LANDED: return landed_is_sound(&r->landed);
    case RECORD_GO_ON: return go_on_is_sound(&r->go_on);
    case RECORD_MEASURE: return measure_is_sound(&r->measure);
    case RECORD_ROWS: return record_rows_are_sound(&r->rows);
    case RECORD_CLOCK: return record_clock_is_sound(&r->clock);
    case RECORD_CLOCKS: return record_clocks_are_sound(&r->clocks);
    case RECORD_TAKEN: return record_taken_is_sound(&r->taken);
    case RECORD_RING: return record_ring_is_sound(&r->ring);
    case RECORD_LOGGED: return record_logged_is_sound(&r->logged);
    }
    return false;
}

int record_check(const void *data, size_t bytes, union record *ret_record, size_t *ret_record_bytes)
{
    /* The kind is read from the copy of the record, because the peer may change shared memory
     * between two reads. */
    size_t copied = bytes < sizeof(*ret_record) ? bytes : sizeof(*ret_record);
    if (copied == 0)
        return -EBADMSG;
    memcpy(ret_record, data, copied);
    size_t fixed = bytes_of_kind(ret_record->kind);
    if (fixed == 0 || bytes < fixed || !record_is_sound(ret_record))
        return -EBADMSG;
    size_t payload = ret_record->kind == RECORD_READY ? ret_record->ready.payload_bytes : 0;
    if (bytes - fixed != payload)
        return -EBADMSG;
    *ret_record_bytes = fixed;
    return 0;
}

size_t record_bytes(const union record *record) { return bytes_of_kind(record->kind); }

void record_error_init(struct record_error *ret_error, uint32_t word, int code, const char *text)
{
    size_t bytes = strnlen(text, RECORD_TEXT_BYTES);
    memset(ret_error, 0, sizeof(*ret_error));
    ret_error->kind = RECORD_ERROR;
    ret_error->word = word;
    ret_error->code = code;
    ret_error->text_bytes = (uint32_t)bytes;
    memcpy(ret_error->text, text, bytes);
    if (bytes == RECORD_TEXT_BYTES && text[bytes] != '\0')
        memcpy(ret_error->text + bytes - 3, "...", 3);
}
