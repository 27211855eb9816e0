/* Reads streams from a JSON object. Its field `streams` is an array; its field `constants` has the
 * defaults of all streams. Must check every number of a file. */
#include "bench/explore/input/stream.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct stream_source {
    const char *path;
    const json_t *stream, *constants;
    size_t at;
    char *error;
    size_t error_bytes;
    int failure;
};

static void stream_fail(struct stream_source *source, const char *name, const char *expected)
{
    if (source->failure == 0)
        snprintf(source->error, source->error_bytes, "%s: stream %zu: %s: expected %s",
                 source->path, source->at, name, expected);
    source->failure = -EINVAL;
}

/* Returns a number of the stream. If the stream lacks the number, returns the number of the
 * constants; if the constants lack the number, too, returns `usual`. Never returns NAN. */
static double stream_number(struct stream_source *source, const char *name, double usual,
                            double least, double most)
{
    const json_t *value = json_object_get(source->stream, name);
    char expected[64];
    if (!value)
        value = json_object_get(source->constants, name);
    if (!value)
        return usual;
    if (json_is_number(value) && json_number_value(value) >= least &&
        json_number_value(value) <= most)
        return json_number_value(value);
    snprintf(expected, sizeof expected, "a number from %g to %g", least, most);
    stream_fail(source, name, expected);
    return usual;
}

static uint32_t stream_whole(struct stream_source *source, const char *name, uint32_t usual,
                             uint32_t most)
{
    return (uint32_t)stream_number(source, name, usual, 1, most);
}

static enum stream_arrivals stream_kind(struct stream_source *source)
{
    const char *kind = json_string_value(json_object_get(source->stream, "arrivals"));
    if (kind && strcmp(kind, "poisson") == 0)
        return STREAM_POISSON;
    if (kind && strcmp(kind, "batch") == 0)
        return STREAM_BATCH;
    if (kind && (strcmp(kind, "trace") == 0 || strcmp(kind, "philly") == 0))
        return STREAM_TRACE;
    stream_fail(source, "arrivals", "poisson, batch or trace");
    return STREAM_BATCH;
}

static void stream_read_static(struct stream_source *source, struct trial_stream *stream)
{
    const json_t *list = json_object_get(source->stream, "static_w"), *value;
    size_t i;
    stream->static_count = 0;
    json_array_foreach(list, i, value)
    {
        json_int_t workers = json_integer_value(value);
        if (workers < 1 || workers > 16 || i >= STREAM_STATIC_MAX) {
            stream_fail(source, "static_w", "at most 4 whole numbers from 1 to 16");
            return;
        }
        stream->static_w[stream->static_count++] = (uint32_t)workers;
    }
    if (stream->static_count == 0)
        stream_fail(source, "static_w", "at most 4 whole numbers from 1 to 16");
}

static void stream_read_one(struct stream_source *source, struct trial_stream *stream)
{
    const char *name = json_string_value(json_object_get(source->stream, "name"));
    snprintf(stream->name, sizeof stream->name, "%s", name ? name : "");
    if (!name || strlen(name) >= sizeof stream->name || strpbrk(name, "\"\\\n\r\t"))
        stream_fail(source, "name", "a text of at most 47 bytes, without quotes");
    stream->arrivals = stream_kind(source);
    stream->load = stream_number(source, "load", 0.8, 0.01, 100);
    stream->scale = stream_number(source, "scale", 1, 1e-6, 1e6);
    stream->burst = stream_whole(source, "burst", 1, 10000);
    stream->trials = stream_whole(source, "trials", 100, 10000);
    stream->slots = stream_whole(source, "slots", 8, 10000);
    stream->ask = stream_whole(source, "ask", 1, 16);
    stream->workers_max = stream_whole(source, "workers_max", 8, 16);
    stream->minutes = stream_number(source, "minutes", 10, 0.01, 10000);
    stream->seeds = stream_whole(source, "seeds", 1, 1000);
    stream->costs.start_s = stream_number(source, "start_s", 4, 0, 1000);
    stream->costs.preload_start_s = stream_number(source, "preload_start_s", 0.3, 0, 1000);
    stream->costs.resize_s = stream_number(source, "resize_s", 0.05, 0, 1000);
    stream->costs.restart_s = stream_number(source, "restart_s", 30, 0, 1000);
    stream->costs.hold_s = stream_number(source, "hold_s", 60, 0.1, 1000);
    stream_read_static(source, stream);
}

static int stream_read_all(const json_t *root, struct stream_source *source,
                           struct trial_stream *streams, size_t *ret_count)
{
    const json_t *list = json_object_get(root, "streams"), *stream;
    size_t i, count = json_array_size(list);
    if (count == 0 || count > STREAMS_MAX) {
        snprintf(source->error, source->error_bytes, "%s: expected an array `streams` of 1 to %d",
                 source->path, STREAMS_MAX);
        return -EINVAL;
    }
    source->constants = json_object_get(root, "constants");
    json_array_foreach(list, i, stream)
    {
        source->stream = stream;
        source->at = i;
        memset(&streams[i], 0, sizeof streams[i]);
        stream_read_one(source, &streams[i]);
    }
    if (source->failure == 0)
        *ret_count = count;
    return source->failure;
}

int stream_read(const char *path, struct trial_stream ret_streams[STREAMS_MAX], size_t *ret_count,
                char *error, size_t error_bytes)
{
    struct stream_source source = {.path = path, .error = error, .error_bytes = error_bytes};
    json_error_t fault;
    json_t *root = json_load_file(path, 0, &fault);
    if (!root) {
        snprintf(error, error_bytes, "%s:%d: %s", path, fault.line, fault.text);
        return -EINVAL;
    }
    int r = stream_read_all(root, &source, ret_streams, ret_count);
    json_decref(root);
    return r;
}
