/* Sends to the lanes of a job the ranks that have left. A lane without a connection to such a rank
 * would otherwise wait for the rank until a deadline. Owns the timer of these messages (RULES.md:
 * K55). */
#include "svc/coordinator/session/goodbye.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

/* Delay of the message. The ranks of a job usually end together, and the message is then not
 * needed. */
#define TELL_NS (200 * NS_PER_MS)

struct goodbyes {
    struct service *service;
    struct timer timer;
    bool are_due; /* the timer is running */
};

struct goodbye_asked {
    uint32_t job, lane;
};

static bool find_leavers(const struct job *job, uint64_t *ret_ranks)
{
    bool any = false;
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (!session || session->state != SESSION_LEFT)
            continue;
        ranks_add(ret_ranks, rank);
        any = true;
    }
    return any;
}

void leavers_changed(struct job *job)
{
    struct service *s = job->service;
    uint64_t ranks[TERMS_RANK_WORDS] = {0};
    if (job->terms->is_elastic || job->failure || !find_leavers(job, ranks))
        return;
    job->ranks->tells_leavers = true;
    if (!s->goodbyes->are_due)
        timer_start(s->loop, &s->goodbyes->timer, clock_now_ns() + TELL_NS);
    s->goodbyes->are_due = true;
}

/* Handles the answer. A message without an answer is sent again, unless the lane has dropped the
 * job (-ENOENT). */
static void told(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    const struct goodbye_asked *asked = data;
    struct job *job = jobs_find_id(s, asked->job);
    if (reply || !job || code == -ENOENT)
        return;
    if (code == -ECONNRESET || code == -ENOTCONN || code == -ETIMEDOUT || code == -ENOMEM)
        return leavers_changed(job);
    log_warn("job %s: lane %u was not informed of the ranks that have left: %s; see the log of its "
             "aggregator",
             job->name, asked->lane, text);
}

static int tell_lane(struct job *job, struct lane *lane, uint64_t *ranks)
{
    const struct goodbye_asked asked = {job->id, lane->id};
    if (lane->aggregator->state != AGGREGATOR_UP)
        return -EAGAIN;
    return lane_call(lane, told, &asked, sizeof asked, LEFT_REQUEST, left_request,
                     .job_id = job->id,
                     .left = {TERMS_RANK_WORDS * sizeof *ranks, (uint8_t *)ranks});
}

static void tell(struct job *job)
{
    uint64_t ranks[TERMS_RANK_WORDS] = {0};
    bool is_told = true;
    job->ranks->tells_leavers = false;
    if (job->failure || !find_leavers(job, ranks))
        return;
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].pieces > 0 && tell_lane(job, job->shares[i].lane, ranks) < 0)
            is_told = false;
    if (!is_told)
        leavers_changed(job);
}

static void tell_all(struct timer *timer)
{
    struct service *s = container_of(timer, struct goodbyes, timer)->service;
    s->goodbyes->are_due = false;
    list_for_each_entry (struct job, job, &s->jobs, link)
        if (job->ranks->tells_leavers)
            tell(job);
}

int leavers_create(struct service *s)
{
    s->goodbyes = calloc(1, sizeof *s->goodbyes);
    if (!s->goodbyes)
        return -ENOMEM;
    s->goodbyes->service = s;
    timer_init(&s->goodbyes->timer, tell_all);
    return 0;
}

void leavers_destroy(struct service *s)
{
    if (!s->goodbyes)
        return;
    timer_stop(&s->goodbyes->timer);
    free(s->goodbyes);
}

void leavers_start(struct service *s)
{
    list_for_each (node, &s->jobs)
        leavers_changed(list_entry(node, struct job, link));
}
