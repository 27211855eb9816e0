"""The lock of a study's folder, which the process of the study holds. Imports no SQLite: trials
look at the lock, too."""
import contextlib
import errno
import fcntl
import os
import time

from ..errors import GradpoolError

NAME = 'study.lock'
_LOCK_S, _LOCK_PAUSE_S = 1, 0.02    # is_locked() of another process holds the lock for a moment


def lock(folder):
    """Locks the folder for this process. Returns a descriptor, which is closed with the process."""
    path = os.path.join(folder, NAME)
    try:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise GradpoolError(error.errno or errno.EIO, f'{path} cannot be opened: {error.strerror}; '
                            'check its permissions, or give another folder') from None
    until_s = time.monotonic() + _LOCK_S
    while not (is_ours := _try_lock(held)) and time.monotonic() < until_s:
        time.sleep(_LOCK_PAUSE_S)
    if not is_ours:
        holder = os.read(held, 32).decode() or 'unknown'
        os.close(held)
        raise GradpoolError(errno.EEXIST, f'folder {folder}: process {holder} runs this study; '
                            'end the process, or give another folder')
    with contextlib.suppress(OSError):      # on a full disk the lock holds without the number
        os.ftruncate(held, 0)
        os.write(held, str(os.getpid()).encode())
    return held


def _try_lock(descriptor, kind=fcntl.LOCK_EX):
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path):
    """Returns whether a process holds the lock of a file."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(held, fcntl.LOCK_SH)     # two that ask at once are no holder
    finally:
        os.close(held)


def is_locked(folder):
    """Returns whether a process runs the study of the folder."""
    return is_held(os.path.join(folder, NAME))


def holder_of(path):
    """Returns the number of the process that holds the lock of a file; None: there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _try_lock(descriptor, fcntl.LOCK_SH):
            return None
        text = os.pread(descriptor, 16, 0)
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
