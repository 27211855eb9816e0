/* Reads a recording, checks it, and sends its sets to the leader lane. Rank 0 sends the set and the
 * takers of a round two rounds ahead, so that the lane needs no memory for more. A new leader lane,
 * or a new connection, gets the sets from `lag` rounds back on, and at least the last set, because
 * the lane must know which round is the last one. */
#include "client/lib/sets/sets.h"
#include "client/lib/sets/sets_file.h"
#include "svc/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AHEAD 2                             /* number of rounds whose sets are sent ahead */
#define BACK (BACKUP_TERMS_LAG_MAX + AHEAD) /* number of rounds whose sets a new lane gets again */

struct sets_replay {
    char *path;
    const char *job, *rule;  /* names of the job and its rule */
    uint32_t workers, words; /* `words`: length of a set */
    uint64_t rounds, room;   /* number of sets; room of the two arrays, in rounds */
    uint64_t *sets, *takers; /* `words` for each round, from round 1 on */
    uint64_t closed;         /* newest round of the job that is known to be closed */
    uint64_t sent, limit;    /* newest round that was sent; newest round that may be sent */
    uint64_t sent_most;      /* newest round that was ever sent */
    struct sets_way to;      /* receiver of the sets; no opening: none yet */
    bool was_told;           /* the log has the line about the end of the file */
};

/* ---- memory ---- */

static uint64_t *words_of(const struct sets_replay *r, uint64_t *all, uint64_t round)
{
    return all + (round - 1) * r->words;
}

static bool replay_has(const struct sets_replay *r, uint64_t *all, uint64_t round, uint32_t rank)
{
    return words_of(r, all, round)[rank / 64] >> (rank % 64) & 1;
}

static bool replay_grow(struct sets_replay *r)
{
    uint64_t room = r->room ? 2 * r->room : 1024;
    size_t bytes = room * r->words * sizeof(uint64_t);
    uint64_t *sets = realloc(r->sets, bytes);
    r->sets = sets ? sets : r->sets;
    uint64_t *takers = realloc(r->takers, bytes);
    r->takers = takers ? takers : r->takers;
    if (!sets || !takers)
        return false;
    r->room = room;
    return true;
}

void sets_replay_free(struct sets_replay *r)
{
    if (!r)
        return;
    free(r->sets);
    free(r->takers);
    free(r->path);
    free(r);
}

/* ---- lines ---- */

static bool has_rank_above(const struct sets_replay *r, const uint64_t *ranks)
{
    for (uint32_t rank = r->workers; rank < RANKS_WORDS * 64; rank++) {
        if (ranks_have(ranks, rank))
            return true;
    }
    return false;
}

/* A rank of a set has computed its gradient with the results of the round before. */
static const char *replay_take_round(struct sets_replay *r, const struct sets_line *line)
{
    if (line->round != r->rounds + 1)
        return "the line of a round is missing, or there twice";
    if (r->rounds == r->room && !replay_grow(r))
        return "this process has no memory for its sets";
    for (uint32_t rank = 0; rank < r->workers && line->round > 1; rank++) {
        if (ranks_have(line->ranks, rank) && !replay_has(r, r->sets, r->rounds, rank) &&
            !replay_has(r, r->takers, r->rounds, rank))
            return "a rank of the set did not have the results of the round before";
    }
    r->rounds++;
    memcpy(words_of(r, r->sets, line->round), line->ranks, r->words * sizeof *r->sets);
    memset(words_of(r, r->takers, line->round), 0, r->words * sizeof *r->takers);
    return NULL;
}

static const char *replay_take_taker(struct sets_replay *r, const struct sets_line *line)
{
    if (line->round < 1 || line->round > r->rounds)
        return "the line names a round that does not stand above";
    for (uint32_t rank = 0; rank < r->workers; rank++) {
        if (ranks_have(line->ranks, rank) && replay_has(r, r->sets, line->round, rank))
            return "the rank was in the set of that round";
    }
    for (uint32_t i = 0; i < r->words; i++)
        words_of(r, r->takers, line->round)[i] |= line->ranks[i];
    return NULL;
}

static const char *replay_take_line(struct sets_replay *r, const struct sets_line *line)
{
    if (line->kind == SETS_HEAD)
        return "the line of the job is there twice";
    if (has_rank_above(r, line->ranks))
        return "the line names a rank that the job does not have";
    return line->kind == SETS_ROUND ? replay_take_round(r, line) : replay_take_taker(r, line);
}

/* ---- the file ---- */

/* Compares the head with the job. */
static int replay_check_head(const struct sets_replay *r, const struct sets_line *head,
                             const struct backup_terms *terms, struct err *err)
{
    char rule[BACKUP_TERMS_TEXT_BYTES];
    struct backup_terms plain = *terms;
    plain.sets = 0;
    backup_terms_write(&plain, r->workers, rule, sizeof rule);
    if (head->workers != r->workers)
        return err_set(err, -EINVAL,
                       "job '%s' has %u workers, and the recording %.200s is of %u; start %u "
                       "workers, or name another recording",
                       r->job, r->workers, r->path, head->workers, head->workers);
    if (strcmp(head->rule, rule) != 0)
        return err_set(err, -EINVAL,
                       "job '%s' has backup rule %s, and the recording %.100s is of %s; give the "
                       "recorded rule, or name another recording",
                       r->job, rule, r->path, head->rule);
    return 0;
}

static int replay_refuse(const struct sets_replay *r, uint64_t number, const char *fault,
                         struct err *err)
{
    return err_set(err, -EINVAL,
                   "job '%s': the recording %.200s is damaged in line %" PRIu64
                   ": %s; name a whole recording",
                   r->job, r->path, number, fault);
}

static int replay_unreadable(const struct sets_replay *r, int code, struct err *err)
{
    return err_set(err, code,
                   "job '%s': the recording %.200s cannot be read: %s; name another file", r->job,
                   r->path, err_text(code));
}

/* Handles one line without its end. */
static int replay_read_line(struct sets_replay *r, uint64_t number, char *text, uint64_t *sum,
                            const struct backup_terms *terms, struct err *err)
{
    struct sets_line line;
    const char *fault = sets_line_read(text, sum, &line);
    if (!fault && number == 1 && line.kind == SETS_HEAD)
        return replay_check_head(r, &line, terms, err);
    if (!fault && number == 1)
        fault = "the line of the job is missing";
    if (!fault)
        fault = replay_take_line(r, &line);
    return fault ? replay_refuse(r, number, fault, err) : 0;
}

/* A process that was killed may have written the last line in part. This line has no end. */
static int replay_read_lines(struct sets_replay *r, FILE *file, const struct backup_terms *terms,
                             struct err *err)
{
    char *text = NULL;
    size_t room = 0;
    uint64_t number = 0, sum = 0;
    ssize_t bytes;
    int error = 0;
    while (error == 0 && (bytes = getline(&text, &room, file)) > 0 && text[bytes - 1] == '\n') {
        text[bytes - 1] = '\0';
        error = replay_read_line(r, ++number, text, &sum, terms, err);
    }
    if (error == 0 && ferror(file))
        error = replay_unreadable(r, -errno, err);
    if (error == 0 && r->rounds == 0)
        error = replay_refuse(r, number + 1, "the file has no round", err);
    free(text);
    return error;
}

static int replay_open(struct sets_replay *r, const struct backup_terms *terms, struct err *err)
{
    struct stat seen;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits for a FIFO's writer */
    if (fd < 0)
        return replay_unreadable(r, -errno, err);
    bool is_file = fstat(fd, &seen) == 0 && S_ISREG(seen.st_mode);
    FILE *file = is_file ? fdopen(fd, "r") : NULL;
    if (!file) {
        close(fd);
        return is_file ? replay_unreadable(r, -ENOMEM, err)
                       : err_set(err, -EINVAL,
                                 "job '%s': %.200s is no regular file; name the file of a "
                                 "recording",
                                 r->job, r->path);
    }
    int error = replay_read_lines(r, file, terms, err);
    fclose(file);
    return error;
}

int sets_replay_read(const char *path, const struct gp_job *job, const struct backup_terms *terms,
                     uint32_t workers, struct sets_replay **ret_replay, struct err *err)
{
    struct sets_replay *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(path))) {
        free(r);
        return err_set(err, -ENOMEM, "job '%s': this process has no memory for the recording",
                       job->name);
    }
    r->job = job->name;
    r->rule = backup_terms_rule_name(terms->rule);
    r->workers = workers;
    r->words = (workers + 63) / 64;
    int error = replay_open(r, terms, err);
    if (error == 0)
        *ret_replay = r;
    else
        sets_replay_free(r);
    return error;
}

/* ---- the job ---- */

void sets_replay_closed(struct sets_replay *r, uint64_t round)
{
    r->closed = round > r->closed ? round : r->closed;
    if (r->closed <= r->rounds || r->was_told)
        return;
    r->was_told = true;
    log_warn(
        "job '%s': the recording %s ends after round %" PRIu64
        "; rule '%s' closes the later rounds, whose bits may differ from those of the recorded "
        "job",
        r->job, r->path, r->rounds, r->rule);
}

/* Begins again for another receiver. The former receiver may have closed every round that was sent,
 * so this receiver gets one more round. If receivers change again and again without a close, no set
 * beyond round closed + BACK is sent, because it would replace the set of the open round. */
static void replay_begin(struct sets_replay *r, const struct sets_way *to)
{
    if (r->to.lane == to->lane && r->to.openings == to->openings && r->to.epoch == to->epoch)
        return;
    r->to = *to;
    r->sent = r->closed > BACK ? r->closed - BACK : 0;
    if (r->sent >= r->rounds)
        r->sent = r->rounds - 1;
    r->limit = r->sent_most + 1 < r->closed + BACK ? r->sent_most + 1 : r->closed + BACK;
}

static bool replay_send_round(const struct sets_replay *r, struct fabric_conn *conn, uint64_t round)
{
    bool is_last = round == r->rounds;
    struct record_chosen set = {
        .kind = RECORD_CHOSEN, .reason = RECORD_REASON_REPLAY, .round = round};
    struct record_chosen takers = {.kind = RECORD_PASSED,
                                   .form = RECORD_FORM_TAKERS,
                                   .reason = is_last ? RECORD_REASON_REPLAY : 0,
                                   .round = round};
    memcpy(set.ranks, words_of(r, r->sets, round), r->words * sizeof *r->sets);
    memcpy(takers.ranks, words_of(r, r->takers, round), r->words * sizeof *r->takers);
    return fabric_send(conn, &set, sizeof set, NULL, 0) == 0 &&
           fabric_send(conn, &takers, sizeof takers, NULL, 0) == 0;
}

bool sets_replay_send(struct sets_replay *r, const struct sets_way *to)
{
    replay_begin(r, to);
    if (r->limit < r->closed + AHEAD)
        r->limit = r->closed + AHEAD;
    while (r->sent < r->limit && r->sent < r->rounds) {
        if (!replay_send_round(r, to->conn, r->sent + 1))
            return false;
        r->sent++;
        r->sent_most = r->sent > r->sent_most ? r->sent : r->sent_most;
    }
    return true;
}
