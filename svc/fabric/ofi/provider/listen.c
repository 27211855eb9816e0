/* Owns the passive endpoint of a fabric_ofi and the door (door.h). libfabric never reads from a
 * caller whose request is incomplete (O8). */
#include "svc/fabric/ofi/provider/listen.h"

#include "svc/base/log.h"
#include "svc/fabric/ofi/door/door.h"
#include "svc/fabric/ofi/door/guard.h"
#include "svc/fabric/ofi/provider/names.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

struct ofi_listener {
    struct fid_pep *pep;
    struct ofi_door *door; /* NULL: the endpoint has no socket (RDMA) */
};

static void listener_warn_of_unknown_version(void)
{
    if (!ofi_guard_knows(fi_version()))
        log_warn("transport=ofi libfabric=%u.%u error=\"gradpool was never tested with hostile "
                 "peers on this version of libfabric: such a peer might end this process\" "
                 "next=\"use libfabric %s, or open the port to trusted workers only\"",
                 FI_MAJOR(fi_version()), FI_MINOR(fi_version()), OFI_VERSIONS_KNOWN);
}

/* Opens the door. The socket is bound at this point but does not listen yet. Without a socket
 * (RDMA), the network adapter accepts callers. */
static int listener_open_door(struct ofi_fabric *f)
{
    struct ofi_listener *l = f->listener;
    int fd = ofi_socket_find_bound(l->pep);
    if (fd < 0)
        return 0;
    listener_warn_of_unknown_version();
    int error = ofi_guard_check() ?: ofi_door_open(fd, &l->door);
    if (error < 0)
        return error;
    struct epoll_event on_ready = {.events = EPOLLIN, .data.ptr = l};
    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, ofi_door_fd(l->door), &on_ready) < 0 ? -errno : 0;
}

static int listener_open(struct ofi_fabric *f, const struct ofi_address *address)
{
    struct fi_info *info = ofi_info_for(f->info, address, NULL);
    f->listener = calloc(1, sizeof(*f->listener));
    if (info == NULL || f->listener == NULL) {
        fi_freeinfo(info);
        return -ENOMEM;
    }
    int error = fi_passive_ep(f->fabric, info, &f->listener->pep, NULL);
    fi_freeinfo(info);
    if (error == 0)
        error = fi_pep_bind(f->listener->pep, &f->eq->fid, 0);
    if (error == 0)
        error = listener_open_door(f);
    if (error == 0)
        error = fi_listen(f->listener->pep);
    return ofi_errno(error);
}

static int listener_address(const struct ofi_listener *l, struct ofi_address *ret_address)
{
    size_t bytes = sizeof(ret_address->socket);
    if (l->door != NULL)
        return ofi_door_address(l->door, &ret_address->socket);
    return fi_getname(&l->pep->fid, &ret_address->socket, &bytes) ? -EADDRNOTAVAIL : 0;
}

int ofi_listen(struct ofi_fabric *f, const char *address, char *ret_address)
{
    struct ofi_address wanted;
    int error = ofi_address_to_listen(address, f->interface_name, &wanted);
    if (error == 0)
        error = listener_open(f, &wanted);
    if (error == 0)
        error = listener_address(f->listener, &wanted);
    if (error == 0)
        ofi_address_format(&wanted.socket, ret_address, FABRIC_ADDRESS_BYTES_MAX);
    return error;
}

void ofi_listener_close(struct ofi_listener *l)
{
    ofi_door_close(l->door);
    if (l->pep != NULL)
        fi_close(&l->pep->fid);
    free(l);
}

void ofi_listener_abandon(struct ofi_listener *l)
{
    if (l != NULL)
        ofi_door_abandon(l->door);
}

void ofi_listener_look(struct ofi_listener *l) { ofi_door_look(l->door); }

void ofi_listener_reject(struct ofi_listener *l, struct fi_info *info, uint32_t reason)
{
    fi_reject(l->pep, info->handle, &reason, sizeof(reason));
    fi_freeinfo(info);
}

bool ofi_listener_guards(const struct ofi_conn *c)
{
    return c->is_accepted && ofi_fabric_of(c)->listener->door != NULL;
}
