/* Parses the parts of the service's JSON that the bench needs. A missing value must never become a
 * measured 0: a status without lanes is an error, and for a job without a prediction
 * `has_prediction` is false. */
#include "bench/savings/look.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static uint64_t number_of(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static struct look_lane lane_of(const json_t *aggregator, const json_t *lane)
{
    const char *state = text_of(lane, "state");
    return (struct look_lane){.lane = (uint32_t)number_of(lane, "lane"),
                              .aggregator = (uint32_t)number_of(aggregator, "aggregator"),
                              .tasks = (uint32_t)number_of(lane, "tasks"),
                              .is_open =
                                  strcmp(state, "open") == 0 || strcmp(state, "closing") == 0,
                              .cpu_ns = number_of(lane, "cpu_ns")};
}

int look_parse_lanes(const char *text, struct look *ret_look)
{
    json_t *root = json_loads(text, 0, NULL), *aggregator, *lane;
    size_t i, j, count = 0;
    int r = 0;
    json_array_foreach(json_object_get(root, "aggregators"), i, aggregator)
        json_array_foreach(json_object_get(aggregator, "lanes"), j, lane)
    {
        if (count < LOOK_LANES_MAX)
            ret_look->lanes[count++] = lane_of(aggregator, lane);
        else
            r = -E2BIG;
    }
    ret_look->lanes_count = count;
    json_decref(root);
    return r < 0 ? r : count ? 0 : -ENODATA;
}

int look_parse_aggregators(const char *text, pid_t *ret_pids, size_t most)
{
    json_t *root = json_loads(text, 0, NULL), *aggregator;
    size_t i, count = 0;
    int r = root ? 0 : -EBADMSG;
    json_array_foreach(json_object_get(root, "aggregators"), i, aggregator)
    {
        if (strcmp(text_of(aggregator, "state"), "up") == 0 && count < most)
            ret_pids[count++] = (pid_t)number_of(aggregator, "pid");
    }
    json_decref(root);
    return r < 0 ? r : (int)count;
}

static struct look_job job_of(const json_t *job)
{
    struct look_job seen = {.alone_period_ns = number_of(job, "alone_period_ns"),
                            .has_prediction =
                                json_is_integer(json_object_get(job, "predicted_loss_ppm")),
                            .predicted_loss_ppm = (uint32_t)number_of(job, "predicted_loss_ppm"),
                            .lane_ns = number_of(job, "lane_ns")};
    snprintf(seen.name, sizeof seen.name, "%s", text_of(job, "job"));
    return seen;
}

int look_parse_jobs(const char *text, struct look_job *ret_jobs, size_t most)
{
    json_t *root = json_loads(text, 0, NULL), *job;
    size_t i, count = json_array_size(json_object_get(root, "jobs"));
    int r = !root ? -EBADMSG : count > most ? -E2BIG : (int)count;
    json_array_foreach(json_object_get(root, "jobs"), i, job) if (r >= 0) ret_jobs[i] = job_of(job);
    json_decref(root);
    return r;
}

/* Stores only the newest events if there are too many. In the JSON the newest event is the last. */
int look_parse_events(const char *text, struct look_events *ret_events)
{
    json_t *root = json_loads(text, 0, NULL), *event;
    size_t i, count = json_array_size(json_object_get(root, "events"));
    size_t first = count > LOOK_EVENTS_MAX ? count - LOOK_EVENTS_MAX : 0;
    int r = root ? 0 : -EBADMSG;
    ret_events->count = 0;
    json_array_foreach(json_object_get(root, "events"), i, event)
    {
        if (i < first)
            continue;
        struct look_event *seen = &ret_events->events[ret_events->count++];
        seen->at_s = json_number_value(json_object_get(event, "at_s"));
        snprintf(seen->kind, sizeof seen->kind, "%s", text_of(event, "kind"));
        snprintf(seen->text, sizeof seen->text, "%s", text_of(event, "text"));
    }
    json_decref(root);
    return r;
}

static uint64_t cpu_of(const struct look *look, uint32_t lane)
{
    for (size_t i = 0; i < look->lanes_count; i++)
        if (look->lanes[i].lane == lane)
            return look->lanes[i].cpu_ns;
    return 0;
}

double look_cpu_s(const struct look *first, const struct look *last, double *ret_most_s)
{
    double all_s = 0, most_s = 0;
    for (size_t i = 0; i < last->lanes_count; i++) {
        uint64_t before_ns = cpu_of(first, last->lanes[i].lane), now_ns = last->lanes[i].cpu_ns;
        double cpu_s = now_ns > before_ns ? (double)(now_ns - before_ns) / 1e9 : 0;
        all_s += cpu_s;
        most_s = cpu_s > most_s ? cpu_s : most_s;
    }
    *ret_most_s = most_s;
    return all_s;
}

int look_parse_shares(const char *text, struct look_share *ret_shares, size_t most)
{
    json_t *root = json_loads(text, 0, NULL), *job, *lane;
    size_t i, j, count = 0;
    json_array_foreach(json_object_get(root, "jobs"), i, job)
        json_array_foreach(json_object_get(job, "lanes"), j, lane)
    {
        if (count < most)
            ret_shares[count++] =
                (struct look_share){(uint32_t)number_of(lane, "lane"), number_of(lane, "bytes")};
    }
    json_decref(root);
    return count ? (int)count : -ENODATA;
}

int look_parse_tasks(const char *text, uint32_t *ret_tasks, size_t most)
{
    json_t *root = json_loads(text, 0, NULL), *job, *task;
    size_t i, j, count = 0;
    json_array_foreach(json_object_get(root, "jobs"), i, job)
        json_array_foreach(json_object_get(job, "tasks"), j, task)
    {
        if (count < most)
            ret_tasks[count++] = (uint32_t)number_of(task, "task");
    }
    json_decref(root);
    return count ? (int)count : -ENODATA;
}

static struct look_table table_of(const json_t *table)
{
    return (struct look_table){.rows = number_of(table, "rows"),
                               .bytes = number_of(table, "bytes"),
                               .births = number_of(table, "births"),
                               .pushed_keys = number_of(table, "pushed_keys")};
}

int look_parse_tables(const char *text, struct look_table *ret_tables, size_t most)
{
    json_t *root = json_loads(text, 0, NULL), *job, *table;
    size_t i, j, count = 0;
    bool lacks = false;
    json_array_foreach(json_object_get(root, "jobs"), i, job)
        json_array_foreach(json_object_get(job, "tables"), j, table)
    {
        lacks |= !json_is_integer(json_object_get(table, "rows"));
        if (count < most)
            ret_tables[count++] = table_of(table);
    }
    json_decref(root);
    return count && !lacks ? (int)count : -ENODATA;
}
