/* Fuzzes the bytes of an accepted peer before they reach the tcp provider. The result must not
 * depend on the portions in which the bytes arrive. No message may pass with invalid fields that
 * the provider would not check. The counts of requests and answers must never become negative. The
 * first byte selects the bytes sent before, and the second byte the portions. */
#include "svc/fabric/ofi/door/tcp_wire.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES_MAX 4096
#define READ_BYTES 64

/* the bytes sent before: a read of READ_BYTES, and a message that requests an acknowledgement */
static const uint8_t sent_read[40] = {3, 2, 0, 0, 0, 1, 40, 0, 40, [24] = READ_BYTES};
static const uint8_t sent_message[16] = {3, 0, 4, 0, 0, 0, 16, 0, 16};

static void send_before(struct tcp_wire *w, unsigned reads, unsigned messages)
{
    for (; reads > 0; reads--)
        assert(tcp_wire_went(w, sent_read, sizeof(sent_read)) == 0);
    for (; messages > 0; messages--)
        assert(tcp_wire_went(w, sent_message, sizeof(sent_message)) == 0);
}

/* Checks the fields of a whole message that the provider does not check. */
static size_t check_message(const uint8_t *bytes, unsigned *reads, unsigned *acks)
{
    uint64_t total;
    memcpy(&total, bytes + 8, sizeof(total));
    uint8_t op = bytes[1], header_bytes = bytes[6];
    assert(bytes[0] == 3 && (op == 0 || op == 2 || op == 3 || op == 4));
    assert(header_bytes >= 16 && total >= header_bytes);
    assert((op == 2 || op == 4) == (bytes[5] == 1) || op == 0 || op == 3);
    if (op == 3) {
        assert(total == 16 + READ_BYTES && *reads > 0);
        --*reads;
    } else if (op == 0 && bytes[4] == 2) {
        assert(total == 16 && *acks > 0);
        --*acks;
    } else if (op == 0) {
        assert(total - header_bytes <= MESSAGE_BYTES_MAX);
    }
    return total > SIZE_MAX / 2 ? SIZE_MAX / 2 : (size_t)total;
}

static void check_all(const uint8_t *bytes, size_t count, unsigned reads, unsigned acks)
{
    for (size_t at = 0, total; at < count && count - at >= 16; at += total) {
        if (count - at < bytes[at + 6])
            return;
        total = check_message(bytes + at, &reads, &acks);
        if (total > count - at)
            return;
    }
}

static int came_in_parts(struct tcp_wire *w, const uint8_t *bytes, size_t count, size_t part)
{
    for (size_t at = 0; at < count; at += part)
        if (tcp_wire_came(w, bytes + at, part < count - at ? part : count - at) < 0)
            return -EPROTO;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tcp_wire whole, parts;
    if (bytes < 2)
        return 0;
    unsigned reads = data[0] % 4, acks = data[0] / 4 % 4;
    size_t count = bytes - 2;
    uint8_t *exact = malloc(count + 1);
    assert(exact);
    memcpy(exact, data + 2, count);
    tcp_wire_init(&whole, MESSAGE_BYTES_MAX);
    tcp_wire_init(&parts, MESSAGE_BYTES_MAX);
    send_before(&whole, reads, acks);
    send_before(&parts, reads, acks);
    int r = tcp_wire_came(&whole, exact, count);
    assert(r == 0 || r == -EPROTO);
    assert(came_in_parts(&parts, exact, count, 1 + data[1] % 32) == r);
    if (r == 0)
        check_all(exact, count, reads, acks);
    free(exact);
    return 0;
}
