/* Requests that are answered later. A wait ends with its answer, its deadline, or the end of its
 * peer. A call stores the number of a wait, not a pointer, so a late answer finds no wait. */
#include "svc/coordinator/session/wait.h"

#include "svc/coordinator/service.h"

#include <stdlib.h>

static void wait_expired(struct timer *timer)
{
    struct wait *wait = container_of(timer, struct wait, timer);
    wait->expired(wait);
}

struct wait *wait_create(struct peer *p, uint64_t request, uint64_t timeout_ns,
                         void (*expired)(struct wait *wait), void *data)
{
    struct wait *wait = calloc(1, sizeof *wait);
    if (!wait) {
        free(data);
        peer_fail_memory(p, request);
        return NULL;
    }
    struct service *s = p->service;
    p->waits++;
    *wait = (struct wait){
        .id = ++s->door->next_id, .peer = p, .request = request, .expired = expired, .data = data};
    if (p->session) {
        wait->job = p->session->job->id;
        p->session->job->waiting->requests++;
    }
    timer_init(&wait->timer, wait_expired);
    timer_start(s->loop, &wait->timer, clock_now_ns() + timeout_ns);
    list_append(&s->door->waits, &wait->link);
    list_append(&p->own_waits, &wait->own_link);
    return wait;
}

void wait_uncount(struct wait *wait)
{
    struct job *job = wait->job ? jobs_find_id(wait->peer->service, wait->job) : NULL;
    if (job)
        job->waiting->requests--;
    wait->job = 0;
}

void wait_destroy(struct wait *wait)
{
    wait_uncount(wait);
    timer_stop(&wait->timer);
    list_remove(&wait->link);
    list_remove(&wait->own_link);
    wait->peer->waits--;
    peer_check_held(wait->peer);
    free(wait->data);
    free(wait);
}

struct wait *wait_find(struct service *s, uint64_t id)
{
    list_for_each_entry (struct wait, wait, &s->door->waits, link)
        if (wait->id == id)
            return wait;
    return NULL;
}

void waits_cancel(struct peer *p)
{
    while (!list_is_empty(&p->own_waits))
        wait_destroy(list_entry(list_first(&p->own_waits), struct wait, own_link));
}
