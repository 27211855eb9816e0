"""init_process_group() by host and port in a torch that was built without libuv, such as Debian's.
torch 2.4 and later use libuv also in such a build, unless USE_LIBUV is 0."""
import os

from torch.distributed import TCPStore


def prepare():
    """Sets USE_LIBUV=0 if torch has no libuv, unless the variable is set."""
    if 'USE_LIBUV' not in os.environ and not has_libuv():
        os.environ['USE_LIBUV'] = '0'


def has_libuv():
    """Returns True also for torch 1, which never uses libuv."""
    try:
        TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except (RuntimeError, TypeError) as error:
        return 'without libuv' not in str(error)
    return True
