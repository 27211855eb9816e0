/* Parses and checks the items of a pack (O13) from a peer. Needs no connection. */
#ifndef GRADPOOL_FABRIC_OFI_MESSAGE_ITEM_H
#define GRADPOOL_FABRIC_OFI_MESSAGE_ITEM_H

#include <stddef.h>
#include <stdint.h>

enum ofi_item_kind {
    OFI_ITEM_USER = 1,       /* header and payload of fabric_send() */
    OFI_ITEM_WRITE = 2,      /* a struct ofi_item_write and the bytes */
    OFI_ITEM_WRITE_WORD = 3, /* an OFI_ITEM_WRITE with a word for the peer */
};

struct ofi_item {
    uint32_t kind, bytes; /* bytes: length of the body without padding */
};

struct ofi_item_write {
    uint32_t region, word;
    uint64_t offset;
};

#define OFI_ITEM_PAD_BYTES 8

static inline size_t ofi_item_padded(size_t bytes)
{
    return (bytes + OFI_ITEM_PAD_BYTES - 1) / OFI_ITEM_PAD_BYTES * OFI_ITEM_PAD_BYTES;
}

/* Returns the next item of a pack that is not at its end. The body is not copied. Returns 0, or
 * -EPROTO if the bytes are no item of gradpool. */
int ofi_item_next(const uint8_t **at, size_t *left, struct ofi_item *ret_item,
                  const uint8_t **ret_body);
/* Writes the head of a write, and the number of bytes after it. Returns 0, or -EPROTO if the body
 * is shorter than a head. */
int ofi_item_write_head(const uint8_t *body, size_t bytes, struct ofi_item_write *ret_write,
                        size_t *ret_write_bytes);

#endif
