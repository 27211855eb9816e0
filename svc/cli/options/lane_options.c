/* Parses values of options that `serve` and `aggregator` have in common. `serve` checks them
 * before it starts anything. A local aggregator would otherwise refuse the value later. */
#include "svc/cli/options/lane_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HOST_BYTES_MAX 255

int lane_read_uids(void *field, const struct knob *knob, const char *value, struct err *err)
{
    struct cli_lanes *lanes = field;
    char list[1024];
    uint32_t count = 0;
    if (snprintf(list, sizeof list, "%s", value) >= (int)sizeof list)
        return err_set(err, -EINVAL, "the list is too long");
    for (char *rest = list, *item; (item = strsep(&rest, ","));) {
        unsigned long long uid;
        if (count == CLI_UIDS_MAX)
            return err_set(err, -EINVAL, "at most %d users", CLI_UIDS_MAX);
        int error = knobs_number(item, 0, UINT32_MAX - 1, &uid, err);
        if (error < 0)
            return error;
        lanes->uids[count++] = (uint32_t)uid;
    }
    lanes->allow_uids = value;
    lanes->uids_count = count;
    return 0;
}

/* Refuses a port. A host with one colon has a port; an IPv6 address has at least two colons. */
int lane_read_host(void *field, const struct knob *knob, const char *value, struct err *err)
{
    const char *colon = strchr(value, ':');
    bool has_port = colon && !strchr(colon + 1, ':');
    if (!*value || strlen(value) > HOST_BYTES_MAX || has_port || strpbrk(value, " \t\n\"/[]"))
        return err_set(err, -EINVAL,
                       "'%.64s': expected a host name or an address, without port or brackets",
                       value);
    *(const char **)field = value;
    return 0;
}
