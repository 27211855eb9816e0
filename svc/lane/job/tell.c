/* Messages of a lane to its workers, apart from results: COMMIT (sent in batches), CLOSED, CHOSEN,
 * BACKED, GO_ON and ERROR. No memory is allocated: a pending message is stored as a flag of the
 * announcement that the message answers. A worker that does not read its messages delays no other
 * worker (W10). RULES.md: A6. */
#include "svc/lane/job/tell.h"

#include "svc/lane/job/table.h"
#include "svc/lane/state/parameters.h"

#include <errno.h>

static void line_up(struct worker *w)
{
    if (list_is_empty(&w->tell_link))
        list_append(&w->job->lane->telling, &w->tell_link);
}

static void owe(struct worker *w, struct announcement *a, uint8_t what)
{
    if (!w->conn)
        return;
    a->owes = what;
    if (list_is_empty(&a->tell_link))
        list_append(&w->owed, &a->tell_link);
    line_up(w);
}

void tell_commit(struct worker *w, struct announcement *a) { owe(w, a, TELL_COMMIT); }
void tell_error(struct worker *w, struct announcement *a) { owe(w, a, TELL_ERROR); }
void tell_chosen(struct worker *w, struct announcement *a) { owe(w, a, TELL_CHOSEN); }
void tell_go_on(struct worker *w, struct announcement *a) { owe(w, a, TELL_GO_ON); }
void tell_closed(struct worker *w, struct announcement *a, uint64_t round)
{
    a->closed_round = round;
    owe(w, a, TELL_CLOSED);
}
void tell_backed(struct worker *w, struct announcement *a, uint64_t round)
{
    a->closed_round = round;
    owe(w, a, TELL_BACKED);
}

void tell_job_failure(struct worker *w)
{
    if (!w->conn)
        return;
    w->owes_failure = true;
    line_up(w);
}

void tell_passed(struct worker *w, uint64_t round)
{
    if (!w->conn)
        return;
    w->owes_passed = round;
    line_up(w);
}

void tell_measure(struct worker *w, const struct record_measure *told)
{
    struct sampling *all = w->job->sampling;
    if (!w->conn)
        return;
    all->told = *told;
    all->told_to = w;
    line_up(w);
}

int tell_error_now(struct worker *w, uint32_t word, int code, const char *text)
{
    struct record_error error;
    record_error_init(&error, word, code, text);
    return w->conn ? fabric_send(w->conn, &error, sizeof error, NULL, 0) : -ECONNRESET;
}

static struct announcement *first_owed(struct worker *w)
{
    struct list *node = list_first(&w->owed);
    return node ? list_entry(node, struct announcement, tell_link) : NULL;
}

static int send_error(struct worker *w, struct announcement *a)
{
    const struct piece *p = announcement_piece(a);
    int error = tell_error_now(w, a->word, p->failure, p->failure_text);
    if (error == 0)
        list_remove(&a->tell_link);
    return error;
}

/* A set that is no longer in job.choices counts as sent. The worker has received such an old set
 * earlier, with messages of other pieces. */
int tell_set_now(struct worker *w, uint64_t round)
{
    const struct record_chosen *chosen = &w->job->choices[round % CHOICES_PER_JOB];
    uint64_t *known = &w->known_sets[round % CHOICES_PER_JOB];
    if (chosen->round != round || *known == round)
        return 0;
    int error = fabric_send(w->conn, chosen, sizeof *chosen, NULL, 0);
    if (error == 0)
        *known = round;
    return error;
}

/* Sends CLOSED. A leader lane sends the set of the round first: after a move, the ranks may not
 * have received the set from the former owner (A29). If the send queue has no room for both
 * records, neither record is sent yet. */
static int send_closed(struct worker *w, struct announcement *a)
{
    struct record_closed closed = {
        .kind = RECORD_CLOSED, .word = a->word, .round = a->closed_round};
    int error = piece_leads(announcement_piece(a)) ? tell_set_now(w, a->closed_round) : 0;
    if (error == 0)
        error = fabric_send(w->conn, &closed, sizeof closed, NULL, 0);
    if (error == 0)
        list_remove(&a->tell_link);
    return error;
}

static int send_backed(struct worker *w, struct announcement *a)
{
    const struct replica *b = container_of(a, struct replica, told);
    const struct record_backed backed = {.kind = RECORD_BACKED,
                                         .piece = b->piece,
                                         .note = b->note,
                                         .round = a->closed_round,
                                         .steps = b->told_steps};
    int error = fabric_send(w->conn, &backed, sizeof backed, NULL, 0);
    if (error == 0)
        list_remove(&a->tell_link);
    return error;
}

static int send_go_on(struct worker *w, struct announcement *a)
{
    const struct rank *rank = piece_rank(announcement_piece(a), w->number);
    const struct record_go_on go_on = {
        .kind = RECORD_GO_ON, .gradient = (uint8_t)(rank->gradients + 1), .round = a->round};
    int error = fabric_send(w->conn, &go_on, sizeof go_on, NULL, 0);
    if (error == 0)
        list_remove(&a->tell_link);
    return error;
}

/* Sends CHOSEN before COMMIT, because the worker's other lanes wait for the set. */
static int send_chosen(struct worker *w, struct announcement *a)
{
    int error = tell_set_now(w, a->round);
    if (error == 0)
        a->owes = TELL_COMMIT;
    return error;
}

/* Sends as many COMMITs as one record can contain. The other COMMITs stay in the list until the
 * next record is sent. */
static int send_commits(struct worker *w)
{
    struct record_commit commit = {.kind = RECORD_COMMIT};
    list_for_each_entry (struct announcement, a, &w->owed, tell_link) {
        if (a->owes != TELL_COMMIT || commit.count == RECORD_COMMIT_WORDS_MAX)
            break;
        commit.words[commit.count++] = a->word;
    }
    int error = fabric_send(w->conn, &commit, record_bytes((union record *)&commit), NULL, 0);
    for (uint32_t i = 0; error == 0 && i < commit.count; i++)
        list_remove(list_first(&w->owed));
    return error;
}

static int send_owed(struct worker *w, struct announcement *a)
{
    switch (a->owes) {
    case TELL_ERROR: return send_error(w, a);
    case TELL_CLOSED: return send_closed(w, a);
    case TELL_CHOSEN: return send_chosen(w, a);
    case TELL_BACKED: return send_backed(w, a);
    case TELL_GO_ON: return send_go_on(w, a);
    default: return send_commits(w);
    }
}

static int send_passed(struct worker *w)
{
    struct record_chosen passed = w->job->choices[w->owes_passed % CHOICES_PER_JOB];
    passed.kind = RECORD_PASSED;
    int error =
        passed.round == w->owes_passed ? fabric_send(w->conn, &passed, sizeof passed, NULL, 0) : 0;
    if (error == 0)
        w->owes_passed = 0;
    return error;
}

static int send_measure(struct worker *w)
{
    struct sampling *all = w->job->sampling;
    int error = fabric_send(w->conn, &all->told, sizeof all->told, NULL, 0);
    if (error == 0)
        all->told_to = NULL;
    return error;
}

static bool flush_worker(struct worker *w)
{
    struct announcement *a;
    while (w->conn && (a = first_owed(w))) {
        int error = send_owed(w, a);
        if (error < 0)
            /* the messages stay pending until a ROOM or CLOSED event of the connection */
            return false;
    }
    if (w->conn && w->owes_passed && send_passed(w) < 0)
        return false;
    if (w->conn && w->job->sampling->told_to == w && send_measure(w) < 0)
        return false;
    if (w->conn && w->owes_failure)
        w->owes_failure =
            tell_error_now(w, RECORD_WORD_NONE, w->job->failure, w->job->failure_text) == -EAGAIN;
    return !w->owes_failure;
}

void tell_flush(struct lane *lane)
{
    list_for_each_safe_entry (struct worker, w, &lane->telling, tell_link)
        if (flush_worker(w))
            list_remove(&w->tell_link);
}
