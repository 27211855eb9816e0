/* Fuzzes channels that accept connections with keys. A peer that sends any bytes and disconnects
 * never becomes a tenant, and is classified as plain, TLS or invalid. The first byte selects the
 * portions in which the rest arrives. The corpus has greetings made with this key. */
#include "svc/channel/channel.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far below the size of a socket's buffer, so that no write waits for the reader. */
#define STREAM_BYTES_MAX 32768

static int find(void *context, const char *tenant, struct key *ret_key)
{
    assert(key_tenant_is_valid(tenant));
    if (strcmp(tenant, "acme") != 0)
        return -ENOENT;
    *ret_key = (struct key){.tenant = "acme", .secret = {1, 2, 3}};
    return 0;
}

static int receive_all(struct channel *ch)
{
    envelope *message;
    int r;
    while ((r = channel_receive(ch, &message)) == 0)
        gradpool__wire__envelope__free_unpacked(message, NULL);
    assert(channel_tenant(ch) == NULL);
    return r;
}

static void feed(struct channel *ch, int peer, const uint8_t *data, size_t bytes, size_t portion)
{
    int r = -EAGAIN;
    for (size_t sent = 0; sent < bytes && r == -EAGAIN; sent += portion) {
        if (portion > bytes - sent)
            portion = bytes - sent;
        ssize_t written = send(peer, data + sent, portion, MSG_NOSIGNAL);
        assert(written == (ssize_t)portion);
        r = receive_all(ch);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int pair[2];
    struct channel *ch;
    if (bytes < 1 || bytes > STREAM_BYTES_MAX)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    if (channel_create(pair[0], &ch) < 0)
        abort();
    channel_accept_keys(ch, find, NULL);
    feed(ch, pair[1], data + 1, bytes - 1, (size_t)data[0] * 8 + 1);
    shutdown(pair[1], SHUT_WR);
    int r = receive_all(ch);
    assert(r == -EBADMSG || r == -ECONNRESET || r == -EPROTO || r == -ENOKEY || r == -EKEYREJECTED);
    assert(channel_failure(ch)[0] != '\0');
    channel_destroy(ch);
    close(pair[1]);
    return 0;
}
