/* Layout of the messages of fabric_ofi, little endian (O7). */
#ifndef GRADPOOL_FABRIC_OFI_MESSAGE_MESSAGE_H
#define GRADPOOL_FABRIC_OFI_MESSAGE_MESSAGE_H

#include <stdint.h>

enum ofi_message_kind {
    OFI_MESSAGE_USER = 1,     /* followed by header and payload of fabric_send() */
    OFI_MESSAGE_LEND = 2,     /* value: number of the region; followed by a struct ofi_lend */
    OFI_MESSAGE_WITHDRAW = 3, /* value: number of the region */
    OFI_MESSAGE_NOTIFY = 4,   /* value: word */
    OFI_MESSAGE_GOODBYE = 5,  /* the following end of the connection is intended */
    OFI_MESSAGE_PACK = 6,     /* value: number of items that follow, each padded to eight bytes */
};

struct ofi_frame {
    uint32_t kind;
    uint32_t value;
};

struct ofi_lend {
    uint64_t bytes;
    /* address of the first byte: virtual with FI_MR_VIRT_ADDR, otherwise 0 */
    uint64_t address;
    uint64_t key;
};

#endif
