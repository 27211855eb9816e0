/* Writes timelines. Owns the file, the names of tensors and the rows of the picture; knows nothing
 * of where batches come from. What workers recorded is a stranger's: nothing of it is believed that
 * would make the file one that nobody can open. README: E1 to E4. */
#include "svc/timeline/timeline_file.h"

#include "svc/base/text.h"
#include "svc/wire/record.h"
#include "svc/wire/trace_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGGREGATORS_FROM 100000 /* their processes; those of workers are their ranks */
#define ROWS_PER_LANE 10000     /* threads: of lane 3 from 30000 on */
#define ROWS_MAX 4096
#define SPAN_NS_LEAST 100 /* of a step: shorter ones did not happen, they were passed over */

struct row { /* of one lane, or worker: rounds that do not overlap */
    uint64_t end_ns;
};

struct lane_rows {
    uint32_t lane;
    struct row *rows;
    uint32_t count, room;
    uint64_t dropped;
};

struct party { /* a worker or an aggregator */
    bool is_aggregator, has_clock;
    uint32_t number;
    int64_t offset_ns;
    uint64_t error_ns;
    struct lane_rows *lanes;
    size_t lanes_count;
    char failure[256]; /* why it records nothing, as of now; "": it does */
};

struct named {
    uint32_t tensor, first_piece, pieces;
    char *name; /* as it stands between quotes */
};

struct timeline_file {
    FILE *out;
    char *path, *job;
    bool is_new, has_begun, is_stream, has_events, has_failed;
    uint64_t begun_ns;
    off_t end; /* where the next event goes */
    struct named *names;
    size_t names_count, names_room;
    struct party *parties;
    size_t parties_count;
    struct timeline_totals totals;
};

/* --- text --- */

/* Between quotes; what is no UTF-8 loses what is not ASCII. NULL: no memory. */
static char *escape(const char *text)
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

/* Of the coordinator's clock, from the beginning on, in microseconds. */
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

static void add_name(struct timeline_file *f, const Gradpool__Wire__TimelineTensor *tensor)
{
    if (f->names_count == f->names_room) {
        size_t room = f->names_room ? 2 * f->names_room : 64;
        void *grown = realloc(f->names, room * sizeof *f->names);
        if (!grown)
            return; /* it is shown by number */
        f->names = grown;
        f->names_room = room;
    }
    char *name = escape(tensor->name);
    if (name)
        f->names[f->names_count++] = (struct named){.tensor = tensor->tensor,
                                                    .first_piece = tensor->first_piece,
                                                    .pieces = tensor->pieces,
                                                    .name = name};
}

/* The last that is not beyond; both numbers ascend. */
static const struct named *find_name(const struct timeline_file *f, bool is_piece, uint32_t thing)
{
    size_t low = 0, high = f->names_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct named *n = &f->names[middle];
        if ((is_piece ? n->first_piece : n->tensor) <= thing)
            low = middle + 1;
        else
            high = middle;
    }
    const struct named *n = low ? &f->names[low - 1] : NULL;
    bool is_it = n && (is_piece ? thing - n->first_piece < n->pieces : n->tensor == thing);
    return is_it ? n : NULL;
}

static const char *name_of(const struct timeline_file *f, bool is_piece, uint32_t thing,
                           char *buffer, size_t buffer_bytes)
{
    const struct named *n = find_name(f, is_piece, thing);
    if (n)
        return n->name;
    snprintf(buffer, buffer_bytes, "%s %u", is_piece ? "piece" : "tensor", thing);
    return buffer;
}

/* --- events --- */

static void begin_event(struct timeline_file *f, const char *phase, uint32_t process,
                        uint32_t thread, const char *name)
{
    fprintf(f->out, "%s{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u,\"name\":\"%s\"",
            f->has_events ? ",\n" : "", phase, process, thread, name);
    f->has_events = true;
}

static uint32_t process_of(const struct party *party)
{
    return party->number + (party->is_aggregator ? AGGREGATORS_FROM : 0);
}

static void put_party(struct timeline_file *f, const struct party *party,
                      const Gradpool__Wire__TimelineSource *source)
{
    char *node = escape(source->node);
    uint32_t process = process_of(party);
    begin_event(f, "M", process, 0, "process_name");
    fprintf(f->out, ",\"args\":{\"name\":\"%s %u on %s\",\"os_pid\":%u}}",
            party->is_aggregator ? "aggregator" : "rank", party->number, node ? node : "?",
            source->pid);
    begin_event(f, "M", process, 0, "process_sort_index");
    fprintf(f->out, ",\"args\":{\"sort_index\":%u}}", process);
    free(node);
}

static void put_clock(struct timeline_file *f, const struct party *party)
{
    begin_event(f, "M", process_of(party), 0, "clock");
    fputs(",\"args\":{\"unit\":\"us\"", f->out);
    put_us(f->out, "offset", party->offset_ns);
    put_us(f->out, "error", (int64_t)party->error_ns);
    fputs("}}", f->out);
}

static void put_row_name(struct timeline_file *f, const struct party *party,
                         const struct lane_rows *lane, uint32_t index, uint32_t thread)
{
    char more[16] = "";
    if (index > 0)
        snprintf(more, sizeof more, " (%u)", index + 1);
    begin_event(f, "M", process_of(party), thread, "thread_name");
    if (party->is_aggregator)
        fprintf(f->out, ",\"args\":{\"name\":\"lane %u%s\"}}", lane->lane, more);
    else
        fprintf(f->out, ",\"args\":{\"name\":\"rounds%s\"}}", more);
    begin_event(f, "M", process_of(party), thread, "thread_sort_index");
    fprintf(f->out, ",\"args\":{\"sort_index\":%u}}", thread);
}

/* --- rows --- */

static struct party *find_party(struct timeline_file *f,
                                const Gradpool__Wire__TimelineSource *source)
{
    for (size_t i = 0; i < f->parties_count; i++) {
        struct party *party = &f->parties[i];
        if (party->is_aggregator == source->is_aggregator && party->number == source->number)
            return party;
    }
    void *grown = realloc(f->parties, (f->parties_count + 1) * sizeof *f->parties);
    if (!grown)
        return NULL;
    f->parties = grown;
    struct party *party = &f->parties[f->parties_count++];
    *party = (struct party){.is_aggregator = source->is_aggregator, .number = source->number};
    put_party(f, party, source);
    f->totals.workers += !party->is_aggregator;
    return party;
}

static struct lane_rows *find_lane(struct timeline_file *f, struct party *party, uint32_t lane)
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
    f->totals.lanes += party->is_aggregator;
    return rows;
}

static uint32_t thread_of(const struct party *party, const struct lane_rows *lane, uint32_t index)
{
    return (party->is_aggregator ? lane->lane * ROWS_PER_LANE : 0) + index + 1;
}

static bool add_row(struct timeline_file *f, const struct party *party, struct lane_rows *lane)
{
    if (lane->count == ROWS_MAX)
        return false;
    if (lane->count == lane->room) {
        uint32_t room = lane->room ? 2 * lane->room : 4;
        void *grown = realloc(lane->rows, room * sizeof *lane->rows);
        if (!grown)
            return false;
        lane->rows = grown;
        lane->room = room;
    }
    put_row_name(f, party, lane, lane->count, thread_of(party, lane, lane->count));
    lane->rows[lane->count++] = (struct row){0};
    return true;
}

/* The first in which nothing overlaps it: rounds come in the order of their ends. 0: there is no
 * room for one more. */
static uint32_t choose_row(struct timeline_file *f, const struct party *party,
                           struct lane_rows *lane, const struct trace_round *round)
{
    uint32_t i = 0;
    while (i < lane->count && lane->rows[i].end_ns > round->at_ns[0])
        i++;
    if (i == lane->count && !add_row(f, party, lane))
        return 0;
    lane->rows[i].end_ns = round->at_ns[TRACE_STEPS - 1];
    return thread_of(party, lane, i);
}

/* --- rounds --- */

struct span {
    const char *name;
    int from, to; /* steps */
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
    struct timeline_file *f;
    const struct party *party;
    const struct trace_round *round;
    uint32_t process, thread;
};

static int64_t since_begin(const struct drawing *d, int step)
{
    return (int64_t)(d->round->at_ns[step] + (uint64_t)d->party->offset_ns - d->f->begun_ns);
}

static void put_span(const struct drawing *d, const char *name, int from, int to)
{
    FILE *out = d->f->out;
    begin_event(d->f, "X", d->process, d->thread, name);
    put_us(out, "ts", since_begin(d, from));
    put_us(out, "dur", (int64_t)(d->round->at_ns[to] - d->round->at_ns[from]));
    fprintf(out, ",\"args\":{\"round\":%" PRIu64, d->round->round);
}

static void put_whole(const struct drawing *d)
{
    char number[32];
    const struct trace_round *r = d->round;
    bool is_lane = d->party->is_aggregator;
    put_span(d, name_of(d->f, is_lane, r->thing, number, sizeof number), 0, TRACE_STEPS - 1);
    fprintf(d->f->out, ",\"bytes\":%" PRIu64 ",\"operation\":\"%s\"", r->bytes,
            operation_of(r->operation));
    if (is_lane)
        fprintf(d->f->out, ",\"piece\":%u", r->thing);
    fputs("}}", d->f->out);
}

static void put_steps(const struct drawing *d, const struct span *spans)
{
    for (const struct span *s = spans; s->name; s++) {
        if (d->round->at_ns[s->to] - d->round->at_ns[s->from] < SPAN_NS_LEAST)
            continue;
        put_span(d, s->name, s->from, s->to);
        if (s->from == TRACE_HEARD && d->party->is_aggregator)
            fprintf(d->f->out, ",\"last_rank\":%u", d->round->last);
        fputs("}}", d->f->out);
    }
}

static void put_commit(const struct drawing *d)
{
    begin_event(d->f, "i", d->process, d->thread, "commit");
    put_us(d->f->out, "ts", since_begin(d, TRACE_WRITTEN));
    fprintf(d->f->out, ",\"s\":\"t\",\"args\":{\"round\":%" PRIu64 "}}", d->round->round);
}

static void add_round(struct timeline_file *f, const struct party *party, struct lane_rows *lane,
                      const struct trace_round *round)
{
    uint32_t thread = trace_round_is_sound(round) ? choose_row(f, party, lane, round) : 0;
    struct drawing d = {f, party, round, process_of(party), thread};
    f->totals.damaged += thread == 0;
    f->totals.rounds += thread > 0;
    if (thread == 0)
        return;
    put_whole(&d);
    put_steps(&d, party->is_aggregator ? lane_spans : worker_spans);
    if (party->is_aggregator)
        put_commit(&d);
}

static void add_rounds(struct timeline_file *f, struct party *party,
                       const Gradpool__Wire__TimelineRounds *part)
{
    struct lane_rows *lane = find_lane(f, party, part->lane);
    struct trace_round round;
    if (!lane)
        return;
    f->totals.dropped += part->dropped - lane->dropped;
    lane->dropped = part->dropped;
    for (size_t at = 0; at + sizeof round <= part->rounds.len; at += sizeof round) {
        memcpy(&round, part->rounds.data + at, sizeof round);
        add_round(f, party, lane, &round);
    }
}

static void add_source(struct timeline_file *f, const Gradpool__Wire__TimelineSource *source)
{
    struct party *party = find_party(f, source);
    if (!party)
        return;
    bool is_new = !party->has_clock || party->offset_ns != source->offset_ns ||
                  party->error_ns != source->error_ns;
    party->offset_ns = source->offset_ns;
    party->error_ns = source->error_ns;
    if (is_new && source->error_ns > 0) {
        party->has_clock = true;
        put_clock(f, party);
    }
    snprintf(party->failure, sizeof party->failure, "%s", source->failure);
    for (size_t i = 0; i < source->n_rounds; i++)
        add_rounds(f, party, source->rounds[i]);
}

/* --- the file --- */

/* What makes it whole, to be written over by what comes next: it may be the last. */
static void put_end(struct timeline_file *f)
{
    f->end = ftello(f->out);
    fprintf(f->out,
            "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"gradpool\","
            "\"job\":\"%s\",\"rounds\":\"%" PRIu64 "\",\"dropped\":\"%" PRIu64 "\"}}\n",
            f->job ? f->job : "", f->totals.rounds, f->totals.dropped);
    f->has_failed |= fflush(f->out) != 0;
}

void timeline_file_add(struct timeline_file *f, const Gradpool__Wire__TimelineNext *next)
{
    if (!f->is_stream)
        f->has_failed |= fseeko(f->out, f->end, SEEK_SET) < 0;
    for (size_t i = 0; i < next->n_tensors; i++)
        add_name(f, next->tensors[i]);
    for (size_t i = 0; i < next->n_sources; i++)
        add_source(f, next->sources[i]);
    if (!f->is_stream)
        put_end(f);
}

int timeline_file_open(const char *path, struct timeline_file **ret_file, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool is_new = fd >= 0;
    if (!is_new && errno == EEXIST)
        fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, -errno, "cannot write %.300s: %s", path, err_text(-errno));
    struct timeline_file *f = calloc(1, sizeof *f);
    if (f)
        *f = (struct timeline_file){.out = fdopen(fd, "w"), .path = strdup(path), .is_new = is_new};
    if (f && f->out && f->path) {
        *ret_file = f;
        return 0;
    }
    if (!f || !f->out)
        close(fd);
    (void)timeline_file_close(f, NULL, NULL);
    return err_set(err, -ENOMEM, "out of memory");
}

void timeline_file_begin(struct timeline_file *f, const char *job, uint64_t begun_ns)
{
    f->job = escape(job);
    f->begun_ns = begun_ns;
    f->has_begun = true;
    f->is_stream = ftruncate(fileno(f->out), 0) < 0 || fseeko(f->out, 0, SEEK_SET) < 0;
    fputs("{\"traceEvents\":[\n", f->out);
    if (!f->is_stream)
        put_end(f);
}

/* The first of those that have not come round to it. */
static void name_failure(struct timeline_file *f)
{
    for (size_t i = 0; i < f->parties_count && !*f->totals.failure; i++) {
        const struct party *party = &f->parties[i];
        if (*party->failure)
            snprintf(f->totals.failure, sizeof f->totals.failure, "%s %u records nothing: %s",
                     party->is_aggregator ? "aggregator" : "rank", party->number, party->failure);
    }
}

static void file_free(struct timeline_file *f)
{
    for (size_t i = 0; i < f->names_count; i++)
        free(f->names[i].name);
    for (size_t i = 0; i < f->parties_count; i++) {
        for (size_t k = 0; k < f->parties[i].lanes_count; k++)
            free(f->parties[i].lanes[k].rows);
        free(f->parties[i].lanes);
    }
    free(f->names);
    free(f->parties);
    free(f->path);
    free(f->job);
    free(f);
}

int timeline_file_close(struct timeline_file *f, struct timeline_totals *ret_totals,
                        struct err *err)
{
    int r = 0;
    if (!f)
        return 0;
    if (f->has_begun && f->is_stream)
        put_end(f);
    f->has_failed |= f->out && ferror(f->out) != 0;
    f->has_failed |= f->out && fclose(f->out) != 0;
    if (!f->has_begun && f->is_new && f->path)
        unlink(f->path);
    if (f->has_failed)
        r = err_set(err, -EIO, "%.300s could not be written to its end; is the disk full?",
                    f->path);
    name_failure(f);
    if (ret_totals)
        *ret_totals = f->totals;
    file_free(f);
    return r;
}
