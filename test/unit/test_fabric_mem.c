/* fabric_mem: the common cases as shared memory and as a network would be, then what only virtual
 * time can do: delays, deaths and refusals that a seed repeats. */
#include "fabric_suite.h"

#include "svc/wire/fabric_mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the common cases ------------------------------------------------------------------------ */

static struct mem_network *suite_network;

static void begin(bool is_mapped)
{
    struct mem_network_options options = {
        .seed = 1, .delay_min_ns = 100, .delay_max_ns = 5000, .is_mapped = is_mapped};
    assert_int_equal(mem_network_create(&options, &suite_network), 0);
}
static void begin_mapped(void) { begin(true); }
static void begin_remote(void) { begin(false); }
static void end(void) { mem_network_destroy(suite_network); }

static int open_mem(const struct fabric_options *options, struct fabric **ret_fabric)
{
    return mem_fabric_open(suite_network, options, ret_fabric);
}

static void name_address(char *ret_address)
{
    static int count;
    snprintf(ret_address, FABRIC_ADDRESS_BYTES_MAX, "lane %d", count++);
}

static void advance(void)
{
    mem_network_advance(suite_network, mem_network_now_ns(suite_network) + 5000);
}

int main(void)
{
    static const struct fabric_factory mapped = {
        .name = "fabric_mem_mapped",
        .begin = begin_mapped,
        .end = end,
        .open = open_mem,
        .name_address = name_address,
        .dead_address = "nobody",
        .advance = advance,
    };
    struct fabric_factory remote = mapped;
    remote.name = "fabric_mem_remote";
    remote.begin = begin_remote;
    remote.payload_bytes_max = 400;
    return fabric_suite_run(&mapped, NULL, 0) + fabric_suite_run(&remote, NULL, 0);
}
