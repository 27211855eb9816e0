/* Converts timelines to trace events. Independent of the source and destination of batches. Data
 * recorded by workers may be wrong, but viewers can open the file with any values. README: E3,
 * E4. */
#include "svc/timeline/timeline_picture.h"

#include "svc/base/text.h"
#include "svc/wire/record.h"
#include "svc/wire/trace_ring.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* first process number of aggregators; the process number of a worker is its rank */
#define AGGREGATORS_FROM 100000
/* thread numbers for each lane: lane 3 has the numbers from 3000000 on */
#define ROWS_PER_LANE 1000000
/* maximum number of rows of a lane: a power of two, less than ROWS_PER_LANE */
#define ROWS_MAX (1u << 19)
/* Shortest span of a step. The recorder omits shorter steps. */
#define SPAN_NS_LEAST 100

/* Rows of one lane or worker. Rounds in one row do not overlap. */
struct lane_rows {
    uint32_t lane, count, room; /* room: a power of two, or 0 */
    /* ends of the rows as a tree: row i is node room + i; node k has the minimum of nodes 2k and 2k
     * + 1 */
    uint64_t *ends_ns;
    uint64_t dropped;
};

struct party { /* A worker or an aggregator. */
    bool is_aggregator, has_clock;
    uint32_t number;
    int64_t offset_ns;
    uint64_t error_ns;
    struct lane_rows *lanes;
    size_t lanes_count;
    /* reason why the worker or aggregator does not record at present; "": recording works */
    char failure[256];
};

struct named {
    uint32_t tensor, first_piece, pieces;
    char *name; /* escaped for JSON */
};

/* --- text --- */

/* Escapes a text for JSON. In a text that is not UTF-8, each byte outside ASCII is replaced by
 * '?'. */
char *picture_escape(const char *text)
{
    bool is_utf8 = text_is_utf8(text);
    char *escaped = malloc(6 * strlen(text) + 1), *at = escaped;
    for (; escaped && *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\')
            at += snprintf(at, 7, "\\u%04x", c);
        else
            *at++ = c < 0x80 || is_utf8 ? (char)c : '?';
    }
    if (escaped)
        *at = '\0';
    return escaped;
}

/* Writes a time on the coordinator's clock, in microseconds since the beginning. */
static void put_us(FILE *out, const char *key, int64_t ns)
{
    uint64_t size = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    fprintf(out, ",\"%s\":%s%" PRIu64 ".%03u", key, ns < 0 ? "-" : "", size / NS_PER_US,
            (unsigned)(size % NS_PER_US));
}

static const char *operation_of(uint8_t code)
{
    static const char *const names[] = {[RECORD_SUM] = "sum",
                                        [RECORD_MEAN] = "mean",
                                        [RECORD_BROADCAST] = "broadcast",
                                        [RECORD_BARRIER] = "barrier",
                                        [RECORD_MIN] = "min",
                                        [RECORD_MAX] = "max",
                                        [RECORD_PRODUCT] = "product",
                                        [RECORD_GATHER] = "gather",
                                        [RECORD_ALL_TO_ALL] = "all-to-all",
                                        [RECORD_REDUCE_SCATTER] = "reduce-scatter",
                                        [RECORD_SEND] = "send",
                                        [RECORD_UPDATE] = "update",
                                        [RECORD_SAVE] = "save",
                                        [RECORD_RESTORE] = "restore"};
    const char *name = code < sizeof names / sizeof *names ? names[code] : NULL;
    return name ? name : "unknown";
}

/* --- names --- */

static void add_name(struct picture *pic, const Gradpool__Wire__TimelineTensor *tensor)
{
    if (pic->names_count == pic->names_room) {
        size_t room = pic->names_room ? 2 * pic->names_room : 64;
        void *grown = realloc(pic->names, room * sizeof *pic->names);
        if (!grown)
            return; /* without memory for the name, the file shows the tensor's number instead */
        pic->names = grown;
        pic->names_room = room;
    }
    char *name = picture_escape(tensor->name);
    if (name)
        pic->names[pic->names_count++] = (struct named){.tensor = tensor->tensor,
                                                        .first_piece = tensor->first_piece,
                                                        .pieces = tensor->pieces,
                                                        .name = name};
}

/* Finds a tensor by the number of a piece (`is_piece`) or of the tensor; NULL: unknown. Both
 * numbers ascend in `names`, so only the last entry up to `thing` can match. */
static const struct named *find_name(const struct picture *pic, bool is_piece, uint32_t thing)
{
    size_t low = 0, high = pic->names_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct named *n = &pic->names[middle];
        if ((is_piece ? n->first_piece : n->tensor) <= thing)
            low = middle + 1;
        else
            high = middle;
    }
    const struct named *n = low ? &pic->names[low - 1] : NULL;
    bool is_it = n && (is_piece ? thing - n->first_piece < n->pieces : n->tensor == thing);
    return is_it ? n : NULL;
}

static const char *name_of(const struct picture *pic, bool is_piece, uint32_t thing, char *buffer,
                           size_t buffer_bytes)
{
    const struct named *n = find_name(pic, is_piece, thing);
    if (n)
        return n->name;
    snprintf(buffer, buffer_bytes, "%s %u", is_piece ? "piece" : "tensor", thing);
    return buffer;
}

/* --- events --- */

static void begin_event(struct picture *pic, const char *phase, uint32_t process, uint32_t thread,
                        const char *name)
{
    fprintf(pic->out, "%s{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u,\"name\":\"%s\"",
            pic->has_events ? ",\n" : "", phase, process, thread, name);
    pic->has_events = true;
}

static uint32_t process_of(const struct party *party)
{
    return party->number + (party->is_aggregator ? AGGREGATORS_FROM : 0);
}

static void put_party(struct picture *pic, const struct party *party,
                      const Gradpool__Wire__TimelineSource *source)
{
    char *node = picture_escape(source->node);
    uint32_t process = process_of(party);
    begin_event(pic, "M", process, 0, "process_name");
    fprintf(pic->out, ",\"args\":{\"name\":\"%s %u on %s\",\"os_pid\":%u}}",
            party->is_aggregator ? "aggregator" : "rank", party->number, node ? node : "?",
            source->pid);
    begin_event(pic, "M", process, 0, "process_sort_index");
    fprintf(pic->out, ",\"args\":{\"sort_index\":%u}}", process);
    free(node);
}

static void put_clock(struct picture *pic, const struct party *party)
{
    begin_event(pic, "M", process_of(party), 0, "clock");
    fputs(",\"args\":{\"unit\":\"us\"", pic->out);
    put_us(pic->out, "offset", party->offset_ns);
    put_us(pic->out, "error", (int64_t)party->error_ns);
    fputs("}}", pic->out);
}

static void put_row_name(struct picture *pic, const struct party *party,
                         const struct lane_rows *lane, uint32_t index, uint32_t thread)
{
    char more[16] = "";
    if (index > 0)
        snprintf(more, sizeof more, " (%u)", index + 1);
    begin_event(pic, "M", process_of(party), thread, "thread_name");
    if (party->is_aggregator)
        fprintf(pic->out, ",\"args\":{\"name\":\"lane %u%s\"}}", lane->lane, more);
    else
        fprintf(pic->out, ",\"args\":{\"name\":\"rounds%s\"}}", more);
    begin_event(pic, "M", process_of(party), thread, "thread_sort_index");
    fprintf(pic->out, ",\"args\":{\"sort_index\":%u}}", thread);
}

/* --- rows --- */

static struct party *find_party(struct picture *pic, const Gradpool__Wire__TimelineSource *source)
{
    for (size_t i = 0; i < pic->parties_count; i++) {
        struct party *party = &pic->parties[i];
        if (party->is_aggregator == source->is_aggregator && party->number == source->number)
            return party;
    }
    void *grown = realloc(pic->parties, (pic->parties_count + 1) * sizeof *pic->parties);
    if (!grown)
        return NULL;
    pic->parties = grown;
    struct party *party = &pic->parties[pic->parties_count++];
    *party = (struct party){.is_aggregator = source->is_aggregator, .number = source->number};
    put_party(pic, party, source);
    pic->totals.workers += !party->is_aggregator;
    return party;
}

static struct lane_rows *find_lane(struct picture *pic, struct party *party, uint32_t lane)
{
    for (size_t i = 0; i < party->lanes_count; i++) {
        if (party->lanes[i].lane == lane)
            return &party->lanes[i];
    }
    void *grown = realloc(party->lanes, (party->lanes_count + 1) * sizeof *party->lanes);
    if (!grown)
        return NULL;
    party->lanes = grown;
    struct lane_rows *rows = &party->lanes[party->lanes_count++];
    *rows = (struct lane_rows){.lane = lane};
    pic->totals.lanes += party->is_aggregator;
    return rows;
}

static uint32_t thread_of(const struct party *party, const struct lane_rows *lane, uint32_t index)
{
    return (party->is_aggregator ? lane->lane * ROWS_PER_LANE : 0) + index + 1;
}

static void set_end(struct lane_rows *lane, uint32_t row, uint64_t end_ns)
{
    uint64_t *ends = lane->ends_ns;
    uint32_t k = lane->room + row;
    ends[k] = end_ns;
    while (k /= 2)
        ends[k] = ends[2 * k] < ends[2 * k + 1] ? ends[2 * k] : ends[2 * k + 1];
}

/* Doubles the number of rows. Unused rows end at 0, so any round fits into them. */
static bool grow_rows(struct lane_rows *lane)
{
    struct lane_rows old = *lane;
    uint32_t room = old.room ? 2 * old.room : 4;
    uint64_t *ends = room <= ROWS_MAX ? calloc(2 * (size_t)room, sizeof *ends) : NULL;
    if (!ends)
        return false;
    lane->ends_ns = ends;
    lane->room = room;
    for (uint32_t i = 0; i < old.count; i++)
        set_end(lane, i, old.ends_ns[old.room + i]);
    free(old.ends_ns);
    return true;
}

/* Returns the first row that ends at or before `at_ns`. The caller has checked that such a row
 * exists. */
static uint32_t first_row(const struct lane_rows *lane, uint64_t at_ns)
{
    uint32_t k = 1;
    while (k < lane->room)
        k = 2 * k + (lane->ends_ns[2 * k] > at_ns);
    return k - lane->room;
}

/* Returns the first row in which no round overlaps this one, or 0 if no more rows are possible.
 * Rounds arrive in the order of their ends. */
static uint32_t choose_row(struct picture *pic, const struct party *party, struct lane_rows *lane,
                           const struct trace_round *round)
{
    bool is_full = lane->room == 0 || lane->ends_ns[1] > round->at_ns[0];
    if (is_full && !grow_rows(lane))
        return 0;
    uint32_t i = first_row(lane, round->at_ns[0]), thread = thread_of(party, lane, i);
    if (i == lane->count) {
        put_row_name(pic, party, lane, i, thread);
        lane->count++;
    }
    set_end(lane, i, round->at_ns[TRACE_STEPS - 1]);
    return thread;
}

/* --- rounds --- */

struct span {
    const char *name;
    int from, to; /* steps of the round (TRACE_*) */
};

static const struct span worker_spans[] = {
    {"queued", TRACE_PUSHED, TRACE_BEGUN},   {"copy in", TRACE_BEGUN, TRACE_ANNOUNCED},
    {"wait", TRACE_ANNOUNCED, TRACE_LANDED}, {"landed", TRACE_LANDED, TRACE_COPYING},
    {"copy out", TRACE_COPYING, TRACE_DONE}, {0}};
static const struct span lane_spans[] = {{"announcements", TRACE_HEARD, TRACE_READY},
                                         {"queue", TRACE_READY, TRACE_STARTED},
                                         {"read and sum", TRACE_STARTED, TRACE_SUMMED},
                                         {"write", TRACE_SUMMED, TRACE_WRITTEN},
                                         {0}};

struct drawing {
    struct picture *pic;
    const struct party *party;
    const struct trace_round *round;
    uint32_t process, thread;
};

static int64_t since_begin(const struct drawing *d, int step)
{
    return (int64_t)(d->round->at_ns[step] - d->pic->begun_ns);
}

static void put_span(const struct drawing *d, const char *name, int from, int to)
{
    FILE *out = d->pic->out;
    begin_event(d->pic, "X", d->process, d->thread, name);
    put_us(out, "ts", since_begin(d, from));
    put_us(out, "dur", (int64_t)(d->round->at_ns[to] - d->round->at_ns[from]));
    fprintf(out, ",\"args\":{\"round\":%" PRIu64, d->round->round);
}

static void put_whole(const struct drawing *d)
{
    char number[32];
    const struct trace_round *r = d->round;
    bool is_lane = d->party->is_aggregator;
    put_span(d, name_of(d->pic, is_lane, r->thing, number, sizeof number), 0, TRACE_STEPS - 1);
    fprintf(d->pic->out, ",\"bytes\":%" PRIu64 ",\"operation\":\"%s\"", r->bytes,
            operation_of(r->operation));
    if (is_lane)
        fprintf(d->pic->out, ",\"piece\":%u", r->thing);
    fputs("}}", d->pic->out);
}

static void put_steps(const struct drawing *d, const struct span *spans)
{
    for (const struct span *s = spans; s->name; s++) {
        if (d->round->at_ns[s->to] - d->round->at_ns[s->from] < SPAN_NS_LEAST)
            continue;
        put_span(d, s->name, s->from, s->to);
        if (s->from == TRACE_HEARD && d->party->is_aggregator)
            fprintf(d->pic->out, ",\"last_rank\":%u", d->round->last);
        fputs("}}", d->pic->out);
    }
}

static void put_commit(const struct drawing *d)
{
    begin_event(d->pic, "i", d->process, d->thread, "commit");
    put_us(d->pic->out, "ts", since_begin(d, TRACE_WRITTEN));
    fprintf(d->pic->out, ",\"s\":\"t\",\"args\":{\"round\":%" PRIu64 "}}", d->round->round);
}

/* Converts the times of a round to the coordinator's clock. Called before a row is chosen for the
 * round: when the estimate of the clock offset improves, the converted rounds shift, and may then
 * overlap earlier rounds. */
static void move_round(struct trace_round *round, int64_t offset_ns)
{
    for (int i = 0; i < TRACE_STEPS; i++)
        round->at_ns[i] += (uint64_t)offset_ns;
}

static void add_round(struct picture *pic, const struct party *party, struct lane_rows *lane,
                      const struct trace_round *round)
{
    bool is_sound = trace_round_is_sound(round);
    uint32_t thread = is_sound ? choose_row(pic, party, lane, round) : 0;
    struct drawing d = {pic, party, round, process_of(party), thread};
    pic->totals.damaged += !is_sound;
    pic->totals.dropped += is_sound && thread == 0;
    pic->totals.rounds += thread > 0;
    if (thread == 0)
        return;
    put_whole(&d);
    put_steps(&d, party->is_aggregator ? lane_spans : worker_spans);
    if (party->is_aggregator)
        put_commit(&d);
}

static void add_rounds(struct picture *pic, struct party *party,
                       const Gradpool__Wire__TimelineRounds *part)
{
    struct lane_rows *lane = find_lane(pic, party, part->lane);
    struct trace_round round;
    if (!lane)
        return;
    pic->totals.dropped += part->dropped - lane->dropped;
    lane->dropped = part->dropped;
    for (size_t at = 0; at + sizeof round <= part->rounds.len; at += sizeof round) {
        memcpy(&round, part->rounds.data + at, sizeof round);
        move_round(&round, party->offset_ns);
        add_round(pic, party, lane, &round);
    }
}

static void add_source(struct picture *pic, const Gradpool__Wire__TimelineSource *source)
{
    struct party *party = find_party(pic, source);
    if (!party)
        return;
    bool is_new = !party->has_clock || party->offset_ns != source->offset_ns ||
                  party->error_ns != source->error_ns;
    party->offset_ns = source->offset_ns;
    party->error_ns = source->error_ns;
    if (is_new && source->error_ns > 0) {
        party->has_clock = true;
        put_clock(pic, party);
    }
    snprintf(party->failure, sizeof party->failure, "%s", source->failure);
    for (size_t i = 0; i < source->n_rounds; i++)
        add_rounds(pic, party, source->rounds[i]);
}

void picture_add(struct picture *pic, const Gradpool__Wire__TimelineNext *next)
{
    for (size_t i = 0; i < next->n_tensors; i++)
        add_name(pic, next->tensors[i]);
    for (size_t i = 0; i < next->n_sources; i++)
        add_source(pic, next->sources[i]);
}

void picture_name_failure(struct picture *pic)
{
    for (size_t i = 0; i < pic->parties_count && !*pic->totals.failure; i++) {
        const struct party *party = &pic->parties[i];
        if (*party->failure)
            snprintf(pic->totals.failure, sizeof pic->totals.failure, "%s %u: %s",
                     party->is_aggregator ? "aggregator" : "rank", party->number, party->failure);
    }
}

void picture_fini(struct picture *pic)
{
    for (size_t i = 0; i < pic->names_count; i++)
        free(pic->names[i].name);
    for (size_t i = 0; i < pic->parties_count; i++) {
        for (size_t k = 0; k < pic->parties[i].lanes_count; k++)
            free(pic->parties[i].lanes[k].ends_ns);
        free(pic->parties[i].lanes);
    }
    free(pic->names);
    free(pic->parties);
}
