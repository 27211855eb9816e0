/* Reads speeds of interfaces from /sys/class/net, once, when the aggregator joins. */
#include "svc/host/network.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define MEGABIT_BYTES 125000

static uint64_t speed_of(const char *interface_name)
{
    char path[128];
    long long megabits = 0;
    snprintf(path, sizeof path, "/sys/class/net/%.64s/speed", interface_name);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%lld", &megabits) != 1 || megabits < 0 || megabits > 100000000)
        megabits = 0; /* loopback has no speed, and an interface that is down has -1 */
    fclose(file);
    return (uint64_t)megabits * MEGABIT_BYTES;
}

/* Writes the host of an address, without port and brackets. */
static void host_of(const char *address, char *ret_host, size_t host_bytes)
{
    const char *begin = address + (*address == '['), *end = strrchr(address, ':');
    if (*address == '[' && strchr(address, ']'))
        end = strchr(address, ']');
    size_t bytes = end ? (size_t)(end - begin) : strlen(begin);
    snprintf(ret_host, host_bytes, "%.*s", (int)bytes, begin);
}

static int has_address(const struct ifaddrs *one, const char *host)
{
    char text[NI_MAXHOST];
    if (!one->ifa_addr ||
        (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
        return 0;
    socklen_t bytes = one->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                          : sizeof(struct sockaddr_in6);
    return getnameinfo(one->ifa_addr, bytes, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
           strcmp(text, host) == 0;
}

uint64_t network_bytes_per_s(const char *address)
{
    struct ifaddrs *all;
    char host[NI_MAXHOST];
    uint64_t speed = 0;
    if (!address || getifaddrs(&all) < 0)
        return 0;
    host_of(address, host, sizeof host);
    for (const struct ifaddrs *one = all; one && speed == 0; one = one->ifa_next)
        if (has_address(one, host))
            speed = speed_of(one->ifa_name);
    freeifaddrs(all);
    return speed;
}
