/* Messages of fabric_ofi as they are on the wire, little endian (O7). */
#ifndef GRADPOOL_FABRIC_OFI_MESSAGE_MESSAGE_H
#define GRADPOOL_FABRIC_OFI_MESSAGE_MESSAGE_H

#include <stdint.h>

enum ofi_message_kind {
    OFI_MESSAGE_USER = 1,     /* header and payload of fabric_send() follow */
    OFI_MESSAGE_LEND = 2,     /* value: region id; struct ofi_lend follows */
    OFI_MESSAGE_WITHDRAW = 3, /* value: region id */
    OFI_MESSAGE_NOTIFY = 4,   /* value: word */
    OFI_MESSAGE_GOODBYE = 5,  /* the end that follows is meant */
    OFI_MESSAGE_PACK = 6,     /* value: how many items follow, each padded to eight bytes */
};

struct ofi_frame {
    uint32_t kind;
    uint32_t value;
};

struct ofi_lend {
    uint64_t bytes;
    uint64_t address; /* of the first byte: virtual, or 0 (FI_MR_VIRT_ADDR or not) */
    uint64_t key;
};

#endif
