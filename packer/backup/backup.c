/* Owns the state of one job's rounds: ranks, the open round, means over closed rounds. Must never
 * allocate except in backup_create(), and must never count a late gradient in the open round.
 * README.md: BK1 to BK12. */
#include "packer/backup/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *backup_rule_name(enum backup_rule rule)
{
    static const char *const names[] = {"all", "static", "auto",   "before",
                                        "dbw", "blind",  "adasync"};
    return rule < BACKUP_RULES ? names[rule] : "none";
}

const char *backup_reason_name(enum backup_reason reason)
{
    static const char *const names[] = {"all", "gain", "moment", "absence"};
    return reason <= BACKUP_REASON_ABSENCE ? names[reason] : "none";
}

double backup_step(const struct backup *b, double k)
{
    return b->options->rate == BACKUP_RATE_PROPORTIONAL ? k / (double)b->options->workers : 1;
}

uint32_t backup_first_rounds(enum backup_rule rule)
{
    switch (rule) {
    case BACKUP_AUTO:
    case BACKUP_BEFORE: return BACKUP_FIRST_AUTO;
    case BACKUP_DBW:
    case BACKUP_BLIND: return BACKUP_FIRST_DBW;
    default: return 0;
    }
}

bool backup_has_cells(enum backup_rule rule)
{
    return rule == BACKUP_BEFORE || rule == BACKUP_DBW || rule == BACKUP_BLIND;
}

/* --- creation --- */

static struct backup_options options_with_defaults(const struct backup_options *options)
{
    struct backup_options o = *options;
    o.least = o.least ? o.least : BACKUP_LEAST;
    o.absence = o.absence ? o.absence : BACKUP_ABSENCE;
    o.gradients = o.gradients ? o.gradients : 1;
    if (o.least > o.workers && options->least == 0)
        o.least = o.workers;
    return o;
}

static bool options_are_sound(const struct backup_options *o)
{
    bool has_k = o->rule == BACKUP_STATIC || o->rule == BACKUP_ADASYNC;
    bool may_repeat = o->rule == BACKUP_STATIC || o->rule == BACKUP_AUTO;
    if (o->rule >= BACKUP_RULES || o->rate > BACKUP_RATE_PROPORTIONAL || o->workers == 0 ||
        o->workers > BACKUP_WORKERS_MAX || o->least > o->workers ||
        o->gradients > BACKUP_GRADIENTS_MAX)
        return false;
    if (o->gradients > 1 && (!may_repeat || o->workers > BACKUP_SECOND_MAX))
        return false;
    if (backup_has_cells(o->rule) && o->workers > CELLS_WORKERS_MAX)
        return false;
    return has_k ? o->k >= 1 && o->k <= o->workers : o->k == 0;
}

static void backup_forget(struct backup *b)
{
    b->measured_rounds = 0;
    b->k = 0;
    b->former_k = 0;
    b->k_inverse = 0;
    b->round_ns = 0;
    b->estimates->loss = 0;
    b->estimates->first_loss = 0;
    b->is_held = false;
    pace_curve_init(b->curve, b->options->workers);
    if (b->cells)
        cells_clear(b->cells);
    backup_replaced(b);
}

/* Sets the pointers of the state, which is one allocation. Returns the needed bytes; if `b` is
 * NULL, does nothing else. */
static size_t backup_place(struct backup *b, const struct backup_options *o)
{
    size_t n = o->workers, bytes[] = {sizeof *b,
                                      sizeof *b->options,
                                      sizeof *b->estimates,
                                      sizeof *b->curve,
                                      sizeof *b->cells,
                                      backup_has_cells(o->rule) ? cells_bytes(o->workers) : 0,
                                      n * sizeof *b->flights,
                                      n * sizeof *b->ranks,
                                      n * sizeof *b->go_on};
    void *parts[sizeof bytes / sizeof *bytes];
    size_t at = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        parts[i] = b ? (char *)b + at : NULL;
        at += (bytes[i] + 7) / 8 * 8;
    }
    if (!b)
        return at;
    memcpy(parts[1], o, sizeof *o);
    b->options = parts[1];
    b->estimates = parts[2];
    b->curve = parts[3];
    b->cells = bytes[5] > 0 ? parts[4] : NULL;
    if (b->cells)
        cells_init(b->cells, o->workers, parts[5]);
    b->flights = parts[6];
    b->ranks = parts[7];
    b->go_on = parts[8];
    return at;
}

size_t backup_bytes(const struct backup_options *options)
{
    struct backup_options o = options_with_defaults(options);
    return options_are_sound(&o) ? backup_place(NULL, &o) : 0;
}

int backup_init(const struct backup_options *options, uint64_t now_ns, void *memory,
                struct backup **ret_backup)
{
    struct backup_options o = options_with_defaults(options);
    struct backup *b = memory;
    if (!options_are_sound(&o))
        return -EINVAL;
    memset(b, 0, backup_place(NULL, &o));
    backup_place(b, &o);
    for (uint32_t i = 0; i < o.workers; i++)
        b->ranks[i].is_member = true;
    b->members = o.workers;
    b->opened_ns = now_ns;
    backup_forget(b);
    *ret_backup = b;
    return 0;
}

int backup_create(const struct backup_options *options, uint64_t now_ns, struct backup **ret_backup)
{
    size_t bytes = backup_bytes(options);
    void *memory = bytes > 0 ? malloc(bytes) : NULL;
    if (!memory)
        return bytes > 0 ? -ENOMEM : -EINVAL;
    return backup_init(options, now_ns, memory, ret_backup);
}

void backup_destroy(struct backup *b) { free(b); }

/* --- ranks --- */

static struct backup_rank *member_of(struct backup *b, uint32_t rank)
{
    return rank < b->options->workers && b->ranks[rank].is_member ? &b->ranks[rank] : NULL;
}

static double backup_since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) : 0;
}

int backup_interrupted(struct backup *b, uint32_t rank, uint64_t now_ns)
{
    struct backup_rank *r = member_of(b, rank);
    if (!r || !r->is_flying)
        return -EINVAL;
    pace_interrupted(b->curve, &r->pace, backup_since(now_ns, r->began_ns));
    r->is_flying = false;
    return 0;
}

int backup_began(struct backup *b, uint32_t rank, uint64_t now_ns)
{
    struct backup_rank *r = member_of(b, rank);
    if (!r)
        return -EINVAL;
    /* the error of a rank that computes no gradient is ignored */
    (void)backup_interrupted(b, rank, now_ns);
    r->is_flying = true;
    r->began_ns = now_ns;
    r->round = b->round;
    return 0;
}

static void backup_count(struct backup *b, struct backup_rank *r, uint64_t now_ns)
{
    r->counted++;
    b->counted++;
    b->ranks_counted += r->counted == 1;
    b->has_news = true;
    if (b->cells && b->counted <= b->options->workers)
        cells_add(b->cells, b->former_k ? b->former_k : b->members, b->counted,
                  backup_since(now_ns, b->opened_ns));
}

int backup_announced(struct backup *b, uint32_t rank, bool is_of_open, uint64_t now_ns)
{
    struct backup_rank *r = member_of(b, rank);
    if (!r)
        return -EINVAL;
    if (r->is_flying)
        pace_finished(b->curve, &r->pace, backup_since(now_ns, r->began_ns));
    r->is_flying = false;
    if (!is_of_open)
        return BACKUP_LATE;
    if (r->counted < b->options->gradients)
        backup_count(b, r, now_ns);
    return BACKUP_COUNTED;
}

int backup_arrived(struct backup *b, uint32_t rank, uint64_t now_ns)
{
    const struct backup_rank *r = member_of(b, rank);
    if (!r || !r->is_flying)
        return -EINVAL;
    return backup_announced(b, rank, r->round == b->round, now_ns);
}

/* Deletes the table of times, which is valid for one set of members only. */
static void backup_clear_times(struct backup *b)
{
    b->k = 0;
    if (b->cells)
        cells_clear(b->cells);
}

int backup_left(struct backup *b, uint32_t rank)
{
    struct backup_rank *r = member_of(b, rank);
    if (!r)
        return -EINVAL;
    b->counted -= r->counted;
    b->ranks_counted -= r->counted > 0;
    b->members--;
    *r = (struct backup_rank){0};
    backup_clear_times(b);
    return 0;
}

int backup_joined(struct backup *b, uint32_t rank, uint64_t now_ns)
{
    if (rank >= b->options->workers)
        return -EINVAL;
    if (b->ranks[rank].is_member)
        backup_left(b, rank);
    b->ranks[rank] = (struct backup_rank){.is_member = true, .began_ns = now_ns};
    b->members++;
    backup_clear_times(b);
    return 0;
}

/* --- rounds --- */

static void backup_count_round(struct backup *b, uint64_t now_ns)
{
    double a = gain_weight(b->measured_rounds, GAIN_RECENT);
    b->k_inverse += a * (1 / (double)b->counted - b->k_inverse);
    b->round_ns += a * (backup_since(now_ns, b->opened_ns) - b->round_ns);
    b->measured_rounds += b->measured_rounds < UINT32_MAX;
    b->former_k = b->counted < b->options->workers ? b->counted : b->options->workers;
    if (b->cells && b->options->rule == BACKUP_BEFORE)
        cells_forget(b->cells, BACKUP_BEFORE_FORGET);
}

void backup_closed(struct backup *b, uint64_t now_ns)
{
    if (b->counted > 0)
        backup_count_round(b, now_ns);
    for (uint32_t i = 0; i < b->options->workers; i++) {
        struct backup_rank *r = &b->ranks[i];
        r->absence = r->counted > 0 || !r->is_member ? 0 : r->absence + 1;
        r->counted = 0;
    }
    b->round++;
    b->opened_ns = now_ns;
    b->counted = 0;
    b->ranks_counted = 0;
    b->k = 0;
    b->has_news = false;
    b->is_held = false;
}

static void backup_count_loss(struct backup *b, double loss)
{
    if (!isfinite(loss) || loss <= 0)
        return;
    b->estimates->first_loss = b->estimates->first_loss > 0 ? b->estimates->first_loss : loss;
    b->estimates->loss = b->estimates->loss > 0
                             ? b->estimates->loss + BACKUP_LOSS_WEIGHT * (loss - b->estimates->loss)
                             : loss;
}

void backup_measured(struct backup *b, const struct backup_measure *measure)
{
    struct gain_sample sample;
    backup_count_loss(b, measure->loss);
    if (!gain_sample(measure->inputs, measure->squares, measure->mean, &sample))
        return;
    sample.step = backup_step(b, sample.k);
    sample.product = measure->product;
    sample.loss = measure->loss;
    sample.rate = measure->rate;
    if (b->options->rule == BACKUP_DBW) {
        gain_recent_add(&b->estimates->recent, &sample);
        b->estimates->gain = gain_recent_read(&b->estimates->recent);
    } else {
        gain_windows_add(&b->estimates->windows, &sample);
        b->estimates->gain = gain_windows_read(&b->estimates->windows);
    }
}

void backup_replaced(struct backup *b)
{
    b->estimates->windows = (struct gain_windows){0};
    b->estimates->recent = (struct gain_recent){0};
    b->estimates->gain = gain_unknown();
}

void backup_restored(struct backup *b, uint64_t now_ns)
{
    for (uint32_t i = 0; i < b->options->workers; i++)
        b->ranks[i] = (struct backup_rank){.is_member = b->ranks[i].is_member};
    b->opened_ns = now_ns;
    b->counted = 0;
    b->ranks_counted = 0;
    b->has_news = false;
    backup_forget(b);
}

/* --- views --- */

bool backup_is_flying(const struct backup *b, uint32_t rank)
{
    return rank < b->options->workers && b->ranks[rank].is_flying;
}

uint32_t backup_counted(const struct backup *b, uint32_t rank)
{
    return rank < b->options->workers ? b->ranks[rank].counted : 0;
}

bool backup_is_counted(const struct backup *b, uint32_t rank)
{
    return backup_counted(b, rank) > 0;
}

uint32_t backup_absence(const struct backup *b, uint32_t rank)
{
    return rank < b->options->workers ? b->ranks[rank].absence : 0;
}

double backup_scale_ns(const struct backup *b, uint32_t rank)
{
    return rank < b->options->workers ? pace_scale_ns(&b->ranks[rank].pace) : 0;
}

void backup_look(const struct backup *b, struct backup_view *ret_view)
{
    *ret_view = (struct backup_view){.round = b->round,
                                     .counted = b->counted,
                                     .ranks = b->ranks_counted,
                                     .k = b->k,
                                     .noise = b->estimates->gain.noise,
                                     .curvature = b->estimates->gain.curvature,
                                     .k_mean = b->k_inverse > 0 ? 1 / b->k_inverse : 0,
                                     .round_ns = b->round_ns};
}
