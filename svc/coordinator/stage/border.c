/* The border between two stages, in four steps: all members end their part of the present stage;
 * all ranks ask for the next stage; the lanes receive its members; all ranks continue. A rank
 * repeats its request after a reconnect, so a request that was counted before has no further
 * effect. */
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/wait.h"
#include "svc/coordinator/stage/internal.h"
#include "svc/wire/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_NAMED 4
#define TIMEOUT_MS_MAX (24u * 3600 * 1000)

struct stage_wait {
    uint32_t job, rank;
};

/* --- answers --- */

/* Returns the open wait of a rank, and removes it from the rank. NULL: the rank does not wait. */
static struct wait *border_take_wait(struct stages *s, uint32_t rank)
{
    struct wait *wait =
        s->ranks[rank].wait ? wait_find(s->job->service, s->ranks[rank].wait) : NULL;
    s->ranks[rank].wait = 0;
    return wait;
}

static void border_reply(const struct stages *s, struct peer *p, uint64_t request)
{
    peer_reply(p, request, STAGE_REPLY, stage_reply, .number = s->number,
               .first_clock = s->first_clock, .cursor = s->cursor, .trial_steps = s->trial_steps,
               .continues = s->continues, .ranks = {sizeof s->members, (uint8_t *)s->members});
}

/* Answers the ranks that wait for the end of the present stage (`ends`) or for the begin of the
 * next stage. */
static void border_answer_all(struct stages *s, bool ends)
{
    for (uint32_t rank = 0; rank < s->job->workers; rank++) {
        if (s->ranks[rank].wait == 0 || s->ranks[rank].wait_is_end != ends)
            continue;
        struct wait *wait = border_take_wait(s, rank);
        if (!wait)
            continue;
        border_reply(s, wait->peer, wait->request);
        wait_destroy(wait);
    }
}

static void border_fail_all(struct stages *s, int code, const char *text)
{
    for (uint32_t rank = 0; rank < s->job->workers; rank++) {
        struct wait *wait = border_take_wait(s, rank);
        if (!wait)
            continue;
        peer_fail(wait->peer, wait->request, code, "%s", text);
        wait_destroy(wait);
    }
}

/* --- deadlines --- */

static bool border_awaits(const struct stages *s, uint32_t rank, bool ends)
{
    const struct stage_rank *r = &s->ranks[rank];
    return ends || s->is_open ? ranks_have(s->members, rank) && !r->has_ended : !r->is_asking;
}

/* Appends the ranks that are late, such as "1, 2 (has not joined)". Returns their number. */
static uint32_t border_append_late(const struct stages *s, bool ends, char *text, size_t text_bytes)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < s->job->workers; rank++)
        if (border_awaits(s, rank, ends) && count++ < RANKS_NAMED)
            text_append(text, text_bytes, "%s%u%s", count > 1 ? ", " : "", rank,
                        s->job->sessions[rank] ? "" : " (has not joined)");
    if (count > RANKS_NAMED)
        text_append(text, text_bytes, " and %u more", count - RANKS_NAMED);
    return count;
}

/* Writes the reasons for which the border is not complete: missing ranks, or missing answers of
 * lanes. */
static void border_write_lack(const struct stages *s, bool ends, char *text, size_t text_bytes)
{
    char late[128] = "";
    uint32_t count = border_append_late(s, ends, late, sizeof late);
    if (count == 0 || (s->is_open && !s->is_told))
        snprintf(text, text_bytes,
                 "lanes still have work of the stage before; look at gradpool status");
    else
        snprintf(text, text_bytes, "rank%s %s %s not in %s yet; look there, or raise timeout_ms",
                 text_plural(count), late, count > 1 ? "are" : "is",
                 ends || s->is_open ? "gp_stage_end()" : "gp_stage_next()");
}

static void border_write_place(const struct stages *s, bool ends, char *text, size_t text_bytes)
{
    if (*s->terms->name)
        snprintf(text, text_bytes, "%s of stage '%s'", ends ? "end" : "border after the end",
                 s->terms->name);
    else
        snprintf(text, text_bytes, "border before the next stage");
}

static void border_expired(struct wait *wait)
{
    const struct stage_wait *data = wait->data;
    struct job *job = jobs_find_id(wait->peer->service, data->job);
    struct stages *s = job ? job->ranks->stages : NULL;
    char lack[256], place[192];
    if (s) {
        bool ends = s->ranks[data->rank].wait_is_end;
        border_write_lack(s, ends, lack, sizeof lack);
        border_write_place(s, ends, place, sizeof place);
        s->ranks[data->rank].wait = 0;
        peer_fail(wait->peer, wait->request, -ETIMEDOUT, "job %.127s, %s: %s", job->name, place,
                  lack);
    }
    wait_destroy(wait);
}

/* Adds the wait of a rank. An earlier wait of the same rank ends, because the rank no longer reads
 * its answer. */
static void border_wait(struct stages *s, struct peer *p, const envelope *message)
{
    const WIRE(StageRequest) *request = message->stage_request;
    struct stage_rank *r = &s->ranks[p->session->rank];
    struct wait *former = border_take_wait(s, p->session->rank);
    struct stage_wait *data = calloc(1, sizeof *data);
    if (former)
        wait_destroy(former);
    if (!data)
        return peer_fail_memory(p, message->id);
    *data = (struct stage_wait){s->job->id, p->session->rank};
    uint32_t timeout_ms =
        request->timeout_ms < TIMEOUT_MS_MAX ? request->timeout_ms : TIMEOUT_MS_MAX;
    struct wait *wait = wait_create(p, message->id, timeout_ms * NS_PER_MS, border_expired, data);
    if (!wait)
        return;
    wait_uncount(wait); /* not counted, because an idle rank waits until the stage ends */
    r->wait = wait->id;
    r->wait_is_end = request->ends;
}

/* --- the end of a stage --- */

static uint64_t border_larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void border_check_end(struct stages *s)
{
    if (!s->is_open || !s->is_told)
        return;
    for (uint32_t rank = 0; rank < s->job->workers; rank++)
        if (ranks_have(s->members, rank) && !s->ranks[rank].has_ended)
            return;
    s->is_open = false;
    s->times->ended_ns = clock_now_ns();
    s->continues = s->trial_steps > 0 && !s->is_done;
    s->cursor = s->continues ? border_larger(s->cursor, s->next->cursor) : 0;
    s->first_clock = border_larger(s->first_clock, s->next->first_clock);
    s->next->cursor = s->next->first_clock = 0;
    stages_measure(s);
    border_answer_all(s, true);
}

/* Counts the end of a rank's part, once. The clock and cursor with which the stage began stay until
 * all members have ended, because another member may still repeat its request for the stage. */
static void border_note_end(struct stages *s, uint32_t rank, const WIRE(StageRequest) * request)
{
    struct stage_rank *r = &s->ranks[rank];
    if (!s->is_open || !ranks_have(s->members, rank) || r->has_ended)
        return;
    double times[2 * PARALLEL_STEPS + 8];
    size_t most = sizeof times / sizeof *times;
    size_t count = request->n_unit_ps < most ? request->n_unit_ps : most;
    for (size_t i = 0; i < count; i++)
        times[i] = (double)request->unit_ps[i] / 1000;
    double unit_ns = parallel_median(times, count);
    r->has_ended = true;
    s->unit_ns = unit_ns > s->unit_ns ? unit_ns : s->unit_ns;
    s->is_done |= request->is_done;
    s->next->cursor = border_larger(s->next->cursor, request->cursor);
    s->next->first_clock = border_larger(s->next->first_clock, request->ended_clock + 1);
}

/* --- the begin of a stage --- */

/* Returns the number of workers of the next stage. */
static uint32_t border_workers(struct stages *s, bool *ret_is_trial)
{
    uint32_t least, most;
    *ret_is_trial = false;
    if (stage_bounds(s->terms, s->job->workers, &least, &most) < 0 || s->terms->workers > 0)
        return most;
    struct stage_plan *plan = stages_plan(s, s->terms, least, most);
    if (!plan)
        return most;
    *ret_is_trial = parallel_is_trial(&plan->search);
    return parallel_workers(&plan->search);
}

static void border_choose(struct stages *s)
{
    uint32_t workers = s->job->workers, visits[RANKS_WORDS * 64];
    bool is_trial = false;
    memset(s->members, 0, sizeof s->members);
    if (*s->terms->name)
        workers = border_workers(s, &is_trial);
    for (uint32_t rank = 0; rank < s->job->workers; rank++)
        visits[rank] = s->ranks[rank].visits;
    s->trial_steps = is_trial ? PARALLEL_STEPS : 0;
    if (ranks_are_none(s->next->ranks))
        return stage_choose((enum stage_visit)s->terms->visit, visits, s->job->workers, workers,
                            s->members);
    memcpy(s->members, s->next->ranks, sizeof s->members);
    s->trial_steps = s->next->trial_steps;
}

static void border_begin(struct stages *s)
{
    struct err err;
    bool is_same = strcmp(s->terms->name, s->next->terms.name) == 0;
    *s->terms = s->next->terms;
    if (!is_same || !s->continues)
        s->cursor = 0;
    s->number++;
    border_choose(s);
    int error = stages_put(s, &err);
    if (error < 0)
        return jobs_fail(s->job, NULL, error, "stage '%s' of job %.127s was not stored: %s",
                         s->terms->name, s->job->name, err.text);
    for (uint32_t rank = 0; rank < s->job->workers; rank++)
        s->ranks[rank].has_ended = s->ranks[rank].is_asking = false;
    memset(s->next->ranks, 0, sizeof s->next->ranks);
    s->next->count = 0;
    s->unit_ns = 0;
    s->is_open = true;
    s->is_told = s->is_done = s->continues = false;
    s->job->ranks->stage = s->members;
    stages_tell_lanes(s);
}

void stages_told(struct stages *s)
{
    s->times->began_ns = clock_now_ns();
    s->times->hand_over_ns = s->times->ended_ns ? s->times->began_ns - s->times->ended_ns : 0;
    border_answer_all(s, false);
    border_check_end(s);
}

/* Refuses terms that differ between ranks. Ranks with different terms run different scripts, so
 * their job fails. */
static bool border_agrees(struct stages *s, uint32_t rank, const struct stage_terms *terms)
{
    char expected[STAGE_TEXT_BYTES], got[STAGE_TEXT_BYTES];
    if (s->next->count == 0) {
        s->next->terms = *terms;
        s->next->rank = rank;
    }
    if (memcmp(&s->next->terms, terms, sizeof *terms) == 0)
        return true;
    jobs_fail(s->job, NULL, -EINVAL,
              "job %.127s: rank %u asks for stage %s, rank %u for %s; run the same stages on all "
              "ranks",
              s->job->name, s->next->rank, stage_terms_write(&s->next->terms, expected), rank,
              stage_terms_write(terms, got));
    return false;
}

/* Stores the newest committed round of each tensor in memory, with its number of updates. The
 * largest round counts, because an idle rank knows only the rounds before its idle stage. After a
 * restart the number of updates is unknown until a rank reports the stored round. Unknown tensors
 * are ignored. */
static void border_note_rounds(const struct job *job, const WIRE(StageRequest) * request)
{
    size_t place = 0;
    for (size_t i = 0; i < request->n_tensors && i < request->n_rounds; i++) {
        struct tensor *tensor = jobs_tensor_after(job, request->tensors[i], &place);
        bool suits = tensor && members_suit_stages(tensor);
        uint64_t round = request->rounds[i], steps = i < request->n_steps ? request->steps[i] : 0;
        if (!suits || round < tensor->committed)
            continue;
        if (round > tensor->committed || tensor->steps == 0)
            tensor->steps = steps;
        tensor->committed = round;
    }
}

static void border_note_asking(struct stages *s, uint32_t rank, const struct stage_terms *terms,
                               const WIRE(StageRequest) * request)
{
    struct stage_rank *r = &s->ranks[rank];
    border_note_rounds(s->job, request); /* also for a repeated request */
    if (r->is_asking || !border_agrees(s, rank, terms))
        return;
    r->is_asking = true;
    r->visits = request->visits;
    s->next->count++;
    if (request->ranks.len == 0)
        return;
    memcpy(s->next->ranks, request->ranks.data, sizeof s->next->ranks);
    s->next->trial_steps = request->trial_steps;
}

static void border_check_begin(struct stages *s)
{
    if (!s->is_open && s->next->count == s->job->workers)
        border_begin(s);
}

/* --- checks --- */

static struct stage_terms border_terms(const WIRE(StageSpec) * spec)
{
    struct stage_terms terms;
    memset(&terms, 0, sizeof terms); /* memcmp() compares terms, so no byte may be random */
    if (!spec)
        return terms;
    memcpy(terms.name, spec->name, strnlen(spec->name, STAGE_NAME_BYTES_MAX));
    terms.workers = spec->workers;
    terms.workers_min = spec->workers_min;
    terms.workers_max = spec->workers_max;
    terms.goal = spec->goal;
    terms.visit = spec->visit;
    terms.consistency = spec->consistency;
    terms.staleness = spec->staleness;
    terms.carry_bytes = spec->carry_bytes;
    return terms;
}

static int border_check_spec(const struct job *job, const struct stage_terms *terms,
                             const WIRE(StageSpec) * spec, struct err *err)
{
    uint32_t least, most;
    if (!spec)
        return 0;
    if (strlen(spec->name) > STAGE_NAME_BYTES_MAX)
        return err_set(err, -EINVAL, "the name of a stage has %zu bytes; choose a name of 1 to %d",
                       strlen(spec->name), STAGE_NAME_BYTES_MAX);
    int error = stage_terms_check(terms, err);
    if (error == 0 && stage_bounds(terms, job->workers, &least, &most) < 0)
        error = err_set(err, -ENOSPC,
                        "stage '%s' needs at least %u workers (workers_min), and job %.127s has "
                        "%u; start the job with more workers, or lower workers_min",
                        terms->name, terms->workers_min, job->name, job->workers);
    return error;
}

/* Checks that the stage of a recording has only ranks of this job, or that there is no
 * recording. */
static int border_check_ranks(const struct job *job, const WIRE(StageRequest) * request,
                              struct err *err)
{
    uint64_t ranks[RANKS_WORDS] = {0};
    bool is_sound = request->ranks.len == 0 || request->ranks.len == sizeof ranks;
    if (is_sound && request->ranks.len > 0) {
        memcpy(ranks, request->ranks.data, sizeof ranks);
        is_sound = !ranks_are_none(ranks);
    }
    for (uint32_t rank = job->workers; is_sound && rank < RANKS_WORDS * 64; rank++)
        is_sound = !ranks_have(ranks, rank);
    return is_sound ? 0
                    : err_set(err, -EINVAL,
                              "the recorded stage has ranks that job %.127s with %u workers has "
                              "not; replay with as many workers as in the recording",
                              job->name, job->workers);
}

static int border_check_job(const struct job *job, struct err *err)
{
    if (job->failure)
        return err_set(err, -ECONNRESET, "job %.127s has failed: %.400s", job->name, job->failure);
    if (job->terms->is_elastic || job->terms->backup.rule != BACKUP_TERMS_ALL)
        return err_set(err, -EOPNOTSUPP,
                       "job %.127s has backup workers, or continues without lost workers; stages "
                       "need a job with a fixed set of workers in this version",
                       job->name);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (job->sessions[rank] && job->sessions[rank]->state == SESSION_LEFT)
            return err_set(err, -EPIPE,
                           "rank %u has left job %.127s, and a border between stages needs all "
                           "ranks; call gp_job_leave() after the last stage",
                           rank, job->name);
    return 0;
}

/* --- requests --- */

/* Returns whether the rank repeats the request with which the rank entered the present stage. */
static bool border_is_repeat(const struct stages *s, const WIRE(StageRequest) * request)
{
    return !request->ends && request->number + 1 == s->number;
}

/* Refuses a repeated request that names another stage than before, because the rank would then run
 * another stage than the other ranks. The bytes of a carry are not compared after a restart of the
 * coordinator, because they are not stored. */
static int border_check_repeat(const struct stages *s, uint32_t rank,
                               const WIRE(StageRequest) * request, const struct stage_terms *terms,
                               struct err *err)
{
    bool is_repeat = border_is_repeat(s, request);
    const struct stage_terms *former = is_repeat ? s->terms : &s->next->terms;
    struct stage_terms asked = *terms;
    char expected[STAGE_TEXT_BYTES], got[STAGE_TEXT_BYTES];
    if (!is_repeat && (request->ends || !s->ranks[rank].is_asking))
        return 0;
    if (former->carry_bytes == 0)
        asked.carry_bytes = 0;
    stage_terms_write(former, expected);
    if (strcmp(expected, stage_terms_write(&asked, got)) == 0)
        return 0;
    return err_set(err, -EINVAL,
                   "job %.127s: rank %u has asked for stage %s, and now asks for %s; repeat "
                   "gp_stage_next() with the same stage",
                   s->job->name, rank, expected, got);
}

static void border_take(struct stages *s, struct peer *p, const envelope *message,
                        const struct stage_terms *terms)
{
    const WIRE(StageRequest) *request = message->stage_request;
    bool is_repeat = border_is_repeat(s, request);
    if (is_repeat ? s->is_told : request->ends && !s->is_open)
        return border_reply(s, p, message->id);
    /* A rank that ends the present stage has entered this stage, so all lanes had received the
     * members. After a restart the coordinator learns this only now: the requests to lanes end, and
     * waiting ranks are answered. */
    if (!is_repeat && !s->is_told)
        stages_end_telling(s);
    border_wait(s, p, message);
    if (is_repeat) {
        border_note_rounds(s->job, request);
        return stages_tell_lanes(s);
    }
    border_note_end(s, p->session->rank, request);
    if (!request->ends)
        border_note_asking(s, p->session->rank, terms, request);
    border_check_end(s);
    border_check_begin(s);
}

void stages_handle(struct peer *p, const envelope *message)
{
    const WIRE(StageRequest) *request = message->stage_request;
    struct err err;
    if (!p->session)
        return peer_fail(p, message->id, -ENOTCONN, "this connection has no job; join a job first");
    struct job *job = p->session->job;
    const struct stage_terms terms = border_terms(request->spec);
    int error = border_check_job(job, &err) ?: border_check_spec(job, &terms, request->spec, &err)
                                            ?: border_check_ranks(job, request, &err);
    struct stages *s = error < 0 ? NULL : stages_of(job);
    if (error < 0)
        return peer_fail(p, message->id, error, "%s", err.text);
    if (!s)
        return peer_fail_memory(p, message->id);
    if (request->ended_clock >= RECORD_CLOCK_MOST - 1)
        return peer_fail(p, message->id, -EINVAL,
                         "rank %u of job %.127s has ended clock %" PRIu64 ", which is too large; "
                         "start the job again",
                         p->session->rank, job->name, request->ended_clock);
    if (request->number != s->number && !border_is_repeat(s, request))
        return peer_fail(p, message->id, -EINVAL,
                         "rank %u of job %.127s is in stage %" PRIu64 ", the job in stage %" PRIu64
                         "; start the job again",
                         p->session->rank, job->name, request->number, s->number);
    if (border_check_repeat(s, p->session->rank, request, &terms, &err) < 0)
        return peer_fail(p, message->id, err.code, "%s", err.text);
    border_take(s, p, message, &terms);
}

/* --- the end of a job --- */

/* Returns whether a rank waits for the beginning of the present stage. */
static bool border_has_waiting(const struct stages *s)
{
    for (uint32_t rank = 0; rank < s->job->workers; rank++)
        if (s->ranks[rank].wait != 0 && !s->ranks[rank].wait_is_end)
            return true;
    return false;
}

void stages_check(struct job *job)
{
    struct stages *s = job->ranks->stages;
    if (!s)
        return;
    if (!job->failure && border_has_waiting(s))
        return stages_tell_lanes(s);
    if (!job->failure)
        return;
    timer_stop(&s->timer);
    border_fail_all(s, -ECONNRESET, job->failure);
}

void stages_rank_left(const struct session *session)
{
    struct stages *s = session->job->ranks->stages;
    char text[ERR_TEXT_BYTES], place[STAGE_NAME_BYTES_MAX + 32] = "before a stage";
    if (!s)
        return;
    if (*s->terms->name)
        snprintf(place, sizeof place, "inside stage '%s'", s->terms->name);
    snprintf(text, sizeof text,
             "rank %u has left job %.127s %s, and the next border between stages needs all ranks; "
             "call gp_job_leave() after the last stage",
             session->rank, session->job->name, place);
    border_fail_all(s, -EPIPE, text);
}
