/* Program that is linked with libfabric but never runs. Its symbols show symbols.py to which
 * versions of libfabric's functions the linker binds a program of this build. */
#include <rdma/fabric.h>

int main(void)
{
    struct fi_info *info = fi_dupinfo(NULL);
    struct fid_fabric *fabric;
    if (!info || fi_getinfo(fi_version(), NULL, NULL, 0, info, &info) != 0 ||
        fi_fabric(info->fabric_attr, &fabric, NULL) != 0)
        return fi_strerror(1)[0];
    fi_freeinfo(info);
    return 0;
}
