/* Runs the cases of every fabric with fabric_ofi over the tcp provider on ::1. */
#include "test/unit/fabric/fabric_suite.h"

#include <stdio.h>

static int open_ofi(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("ofi", options, ret_fabric);
}

static void name_address(char *ret_address)
{
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "[::1]:0");
}

int main(void)
{
    static const struct fabric_factory v6 = {
        .name = "fabric_ofi_v6",
        .open = open_ofi,
        .name_address = name_address,
        .dead_address = "[::1]:1",
        .payload_bytes_max = 65536,
        .ping_pongs = 2000,
    };
    return fabric_suite_run(&v6, NULL, 0);
}
