/* How a fabric_ofi begins to listen: a passive endpoint of libfabric, and the door in front of it.
 * What was opened before a failure stays in the fabric, whose close_listener() ends it. */
#include "svc/base/log.h"
#include "svc/wire/ofi_conn.h"
#include "svc/wire/ofi_door.h"
#include "svc/wire/ofi_guard.h"

#include <errno.h>
#include <sys/epoll.h>

static void warn_of_unknown_version(void)
{
    if (!ofi_guard_knows(fi_version()))
        log_warn(
            "transport=ofi libfabric=%u.%u error=\"hostile peers were never tried against this "
            "version of libfabric: one of them might end this process\" next=\"use libfabric "
            "%s, or keep its port to workers that are trusted\"",
            FI_MAJOR(fi_version()), FI_MINOR(fi_version()), OFI_VERSIONS_KNOWN);
}

/* Bound already, not listening yet. Without a socket (RDMA) the adapter keeps the door. */
static int open_door(struct ofi_fabric *f)
{
    int fd = ofi_socket_find_bound(f->listener);
    if (fd < 0)
        return 0;
    warn_of_unknown_version();
    int r = ofi_guard_check();
    if (r == 0)
        r = ofi_door_open(fd, &f->door);
    if (r < 0)
        return r;
    struct epoll_event on_ready = {.events = EPOLLIN, .data.ptr = f->door};
    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, ofi_door_fd(f->door), &on_ready) < 0 ? -errno : 0;
}

static int open_listener(struct ofi_fabric *f, const struct ofi_address *address)
{
    struct fi_info *info = ofi_info_for(f->info, address, NULL);
    if (info == NULL)
        return -ENOMEM;
    int r = fi_passive_ep(f->fabric, info, &f->listener, NULL);
    fi_freeinfo(info);
    if (r == 0)
        r = fi_pep_bind(f->listener, &f->eq->fid, 0);
    if (r == 0)
        r = open_door(f);
    if (r == 0)
        r = fi_listen(f->listener);
    return ofi_errno(r);
}

static int listening_at(struct ofi_fabric *f, struct ofi_address *ret_address)
{
    size_t bytes = sizeof(ret_address->socket);
    if (f->door != NULL)
        return ofi_door_address(f->door, &ret_address->socket);
    return fi_getname(&f->listener->fid, &ret_address->socket, &bytes) ? -EADDRNOTAVAIL : 0;
}

int ofi_listen(struct ofi_fabric *f, const char *address, char *ret_address)
{
    struct ofi_address wanted;
    int r = ofi_address_to_listen(address, f->interface_name, &wanted);
    if (r == 0)
        r = open_listener(f, &wanted);
    if (r == 0)
        r = listening_at(f, &wanted);
    if (r == 0)
        ofi_address_format(&wanted.socket, ret_address, FABRIC_ADDRESS_BYTES_MAX);
    return r;
}
