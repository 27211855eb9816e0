/* Versions of libfabric and protobuf-c, and of OpenSSL through tls.c. Must never need the version
 * that was built against: the rows show when another one runs. */
#include "svc/wire/wire_libraries.h"

#include "svc/wire/tls.h"

#include <protobuf-c/protobuf-c.h>
#include <rdma/fabric.h>
#include <stdio.h>

/* At run time libfabric has no third number. */
static void libfabric(struct library *row)
{
    uint32_t now = fi_version();
    row->name = "libfabric";
    snprintf(row->built, sizeof row->built, "%d.%d", FI_MAJOR_VERSION, FI_MINOR_VERSION);
    snprintf(row->running, sizeof row->running, "%u.%u", FI_MAJOR(now), FI_MINOR(now));
}

static void protobuf_c(struct library *row)
{
    row->name = "protobuf-c";
    snprintf(row->built, sizeof row->built, "%s", PROTOBUF_C_VERSION);
    snprintf(row->running, sizeof row->running, "%s", protobuf_c_version());
}

void wire_libraries(struct library *ret_rows)
{
    libfabric(&ret_rows[0]);
    protobuf_c(&ret_rows[1]);
    tls_library(&ret_rows[2]);
}
