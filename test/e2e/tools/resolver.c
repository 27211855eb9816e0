/* test_connections.py preloads this library. The host name in TEST_RESOLVER_HOST resolves to the
 * address in the file TEST_RESOLVER_ADDRESS, which is read in each lookup. */
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_BY_ALL __attribute__((visibility("default")))

typedef int lookup_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int read_address(char address[64])
{
    const char *path = getenv("TEST_RESOLVER_ADDRESS");
    FILE *file = path ? fopen(path, "re") : NULL;
    int found = file && fscanf(file, "%63s", address) == 1;
    if (file)
        fclose(file);
    return found;
}

SEEN_BY_ALL int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                            struct addrinfo **ret_list)
{
    lookup_fn *next = (lookup_fn *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *host = getenv("TEST_RESOLVER_HOST");
    char address[64];
    if (!node || !host || strcmp(node, host) != 0 || (hints && hints->ai_flags & AI_NUMERICHOST))
        return next(node, service, hints, ret_list);
    return read_address(address) ? next(address, service, hints, ret_list) : EAI_AGAIN;
}
