/* Fuzzes the text of an endpoint. Either the text is refused with a reason, and the output is
 * unchanged. Or the parsed endpoint is formatted and parsed again, which gives the same
 * endpoint. */
#include "svc/endpoint/endpoint.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check_round_trip(const struct endpoint *e)
{
    char url[sizeof e->host + 64];
    struct endpoint again;
    int r = endpoint_parse(endpoint_format(e, url, sizeof url), &again, NULL);
    assert(r == 0 && again.is_unix == e->is_unix && strcmp(again.host, e->host) == 0);
    assert(e->is_unix || again.port == e->port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct endpoint e, untouched;
    struct err err = {0};
    memset(&e, 0x5a, sizeof e);
    untouched = e;
    char *text = calloc(1, bytes + 1);
    if (!text)
        abort();
    memcpy(text, data, bytes);
    int r = endpoint_parse(text, &e, &err);
    if (r < 0) {
        assert(r == -EINVAL && err.code == r && err.text[0] != '\0');
        assert(memcmp(&e, &untouched, sizeof e) == 0);
    } else {
        assert(memchr(e.host, '\0', sizeof e.host) != NULL && e.host[0] != '\0');
        endpoint_is_loopback(&e);
        check_round_trip(&e);
    }
    free(text);
    return 0;
}
