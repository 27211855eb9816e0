/* What a pack holds (O13), as bytes of a peer: taken apart and checked without a connection. */
#ifndef GRADPOOL_WIRE_OFI_ITEM_H
#define GRADPOOL_WIRE_OFI_ITEM_H

#include <stddef.h>
#include <stdint.h>

enum ofi_item_kind {
    OFI_ITEM_USER = 1,       /* header and payload of fabric_send() */
    OFI_ITEM_WRITE = 2,      /* struct ofi_item_write and the bytes */
    OFI_ITEM_WRITE_WORD = 3, /* the same, and its word counts */
};

struct ofi_item {
    uint32_t kind, bytes; /* of what follows, without padding */
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

/* Takes the next item off the rest of a pack, which is not empty; its body stays where it is.
 * -EPROTO: not what an end of ours packs. */
int ofi_item_next(const uint8_t **at, size_t *left, struct ofi_item *ret_item,
                  const uint8_t **ret_body);
/* The head of a write, and how many bytes follow it. -EPROTO: it is shorter than that. */
int ofi_item_write_head(const uint8_t *body, size_t bytes, struct ofi_item_write *ret_write,
                        size_t *ret_write_bytes);

#endif
