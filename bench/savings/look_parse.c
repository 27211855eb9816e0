/* The service's JSON, a member a line, as far as it is needed here. Owns nothing. Must never take
 * what it does not find for a zero that was measured: a status without lanes is an error. */
#include "bench/savings/look.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member {
    char name[32];
    const char *value;
};

/* The member of the next line that has one; NULL at the end. */
static const char *next_member(const char *text, struct member *ret_member)
{
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        int value = 0;
        if (sscanf(line, " \"%31[^\"]\": %n", ret_member->name, &value) == 1 && value > 0) {
            ret_member->value = line + value;
            return end ? end + 1 : line + strlen(line);
        }
        if (!end)
            break;
        line = end + 1;
    }
    return NULL;
}

static uint64_t number_of(const struct member *member) { return strtoull(member->value, NULL, 10); }

int look_parse_lanes(const char *text, struct look *ret_look)
{
    struct member member;
    struct look_lane *lane = NULL;
    ret_look->lanes_count = 0;
    while ((text = next_member(text, &member))) {
        if (strcmp(member.name, "lane") == 0) {
            if (ret_look->lanes_count == LOOK_LANES_MAX)
                return -E2BIG;
            lane = &ret_look->lanes[ret_look->lanes_count++];
            *lane = (struct look_lane){0};
        } else if (lane && strcmp(member.name, "tasks") == 0) {
            lane->tasks = (uint32_t)number_of(&member);
        } else if (lane && strcmp(member.name, "state") == 0) {
            lane->is_open = strncmp(member.value, "\"open\"", 6) == 0 ||
                            strncmp(member.value, "\"closing\"", 9) == 0;
        } else if (lane && strcmp(member.name, "cpu_ns") == 0) {
            lane->cpu_ns = number_of(&member);
        }
    }
    return ret_look->lanes_count ? 0 : -ENODATA;
}

int look_parse_jobs(const char *text, struct look_job *ret_jobs, size_t most)
{
    struct member member;
    struct look_job *job = NULL;
    size_t count = 0;
    while ((text = next_member(text, &member))) {
        if (strcmp(member.name, "job") == 0 && *member.value == '"') {
            if (count == most)
                return -E2BIG;
            job = &ret_jobs[count++];
            *job = (struct look_job){0};
            snprintf(job->name, sizeof job->name, "%.*s", (int)strcspn(member.value + 1, "\""),
                     member.value + 1);
        } else if (job && strcmp(member.name, "alone_period_ns") == 0) {
            job->alone_period_ns = number_of(&member);
        } else if (job && strcmp(member.name, "predicted_loss_ppm") == 0) {
            job->predicted_loss_ppm = (uint32_t)number_of(&member);
        } else if (job && strcmp(member.name, "lane_ns") == 0) {
            job->lane_ns = number_of(&member);
        }
    }
    return (int)count;
}
