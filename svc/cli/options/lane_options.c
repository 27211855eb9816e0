/* The values of options that `serve` and `aggregator` share. What is wrong is said here, before
 * anything starts: a local aggregator that refuses what `serve` was told would start in vain. */
#include "svc/cli/options/lane_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HOST_BYTES_MAX 255

static int set_uids(struct cli_lanes *lanes, const char *value, struct err *err)
{
    char list[1024];
    lanes->allow_uids = value;
    lanes->uids_count = 0;
    if (snprintf(list, sizeof list, "%s", value) >= (int)sizeof list)
        return err_set(err, -EINVAL, "the list is too long");
    for (char *rest = list, *item; (item = strsep(&rest, ","));) {
        unsigned long long uid;
        if (lanes->uids_count == CLI_UIDS_MAX)
            return err_set(err, -EINVAL, "at most %d users", CLI_UIDS_MAX);
        int error = knobs_number(item, 0, UINT32_MAX - 1, &uid, err);
        if (error < 0)
            return error;
        lanes->uids[lanes->uids_count++] = (uint32_t)uid;
    }
    return 0;
}

/* One colon would be a port, which is not asked for; an IPv6 address has two at least. */
static int set_host(const char **ret_host, const char *value, struct err *err)
{
    const char *colon = strchr(value, ':');
    bool has_port = colon && !strchr(colon + 1, ':');
    if (!*value || strlen(value) > HOST_BYTES_MAX || has_port || strpbrk(value, " \t\n\"/[]"))
        return err_set(err, -EINVAL,
                       "'%.64s': expected a host name or an address, without port or brackets",
                       value);
    *ret_host = value;
    return 0;
}

int lane_option_set(struct cli_lanes *lanes, int index, const char *value, struct err *err)
{
    unsigned long long number = 0;
    int error = 0;
    switch ((enum lane_option)index) {
    case LANE_ADVERTISE: return set_host(&lanes->advertise, value, err);
    case LANE_INTERFACE: lanes->interface_name = value; break;
    case LANE_CORES: lanes->cores = value; break;
    case LANE_ALLOW_UID: return set_uids(lanes, value, err);
    case LANE_DATA_PORT:
        error = knobs_number(value, 0, 65535, &number, err);
        lanes->data_port = (uint16_t)number;
        break;
    case LANE_ORPHAN_TIMEOUT:
        error = knobs_number(value, 0, 86400u * 365, &number, err);
        lanes->orphan_timeout_s = number;
        break;
    case LANE_LEAVE_TIMEOUT:
        error = knobs_number(value, 0, 86400, &number, err);
        lanes->leave_timeout_s = number;
        break;
    case LANE_PER_CORE:
        error = knobs_number(value, 1, 64, &number, err);
        lanes->lanes_per_core = (uint32_t)number;
        break;
    case LANE_NETWORK:
        error = knobs_number(value, 1, 100000, &number, err);
        lanes->network_gbit = (uint32_t)number;
        break;
    case LANE_OPTIONS: break;
    }
    return error;
}
