/* fabric_shm: the common cases, then what only shared memory and its hostile peers can do. */
#include "fabric_suite.h"

#include <stdio.h>
#include <unistd.h>

static void name_address(char *ret_address)
{
    static int count;

    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "@gradpool-test-%d-%d", (int)getpid(), count++);
}

static int open_shm(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return fabric_open("shm", options, ret_fabric);
}

int main(void)
{
    static const struct fabric_factory shm = {
        .name = "fabric_shm",
        .open = open_shm,
        .name_address = name_address,
        .dead_address = "@gradpool-test-nobody",
        .ping_pongs = 20000,
    };
    return fabric_suite_run(&shm, NULL, 0);
}
