/* Parses packs. Checks every byte, stores nothing, allocates nothing. README: O13. */
#include "svc/fabric/ofi/message/item.h"

#include <errno.h>
#include <string.h>

int ofi_item_next(const uint8_t **at, size_t *left, struct ofi_item *ret_item,
                  const uint8_t **ret_body)
{
    struct ofi_item item;
    if (*left < sizeof(item))
        return -EPROTO;
    memcpy(&item, *at, sizeof(item));
    size_t room = *left - sizeof(item);
    if (item.kind < OFI_ITEM_USER || item.kind > OFI_ITEM_WRITE_WORD || item.bytes > room ||
        ofi_item_padded(item.bytes) > room)
        return -EPROTO;
    *ret_body = *at + sizeof(item);
    *at = *ret_body + ofi_item_padded(item.bytes);
    *left = room - ofi_item_padded(item.bytes);
    *ret_item = item;
    return 0;
}

int ofi_item_write_head(const uint8_t *body, size_t bytes, struct ofi_item_write *ret_write,
                        size_t *ret_write_bytes)
{
    if (bytes < sizeof(*ret_write))
        return -EPROTO;
    memcpy(ret_write, body, sizeof(*ret_write));
    *ret_write_bytes = bytes - sizeof(*ret_write);
    return 0;
}
