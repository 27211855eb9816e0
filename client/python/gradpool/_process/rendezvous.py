"""init_process_group() by a host and a port in a torch that was built without libuv, as Debian's:
torch 2.4 and later ask for it all the same, unless USE_LIBUV is 0."""
import os

from torch.distributed import TCPStore


def prepare():
    """Tells torch to use no libuv where it has none, unless the script's environment decides."""
    if 'USE_LIBUV' not in os.environ and not has_libuv():
        os.environ['USE_LIBUV'] = '0'


def has_libuv():
    """True, too: torch 1, which does not ask for it."""
    try:
        TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except (RuntimeError, TypeError) as error:
        return 'without libuv' not in str(error)
    return True
