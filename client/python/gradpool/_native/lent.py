"""Memory of a job that lanes on this host use in place, as buffers for torch and numpy. A buffer
ends when no tensor or array uses its memory; the next buffer of the same size then gets its pages.
Memory that the script still uses is not reused, and exists after the end of the job, too (Y20)."""
import ctypes
import mmap
import weakref

from .binding import check, lib

_munmap = ctypes.CDLL(None, use_errno=True).munmap
_munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t


class Lent:
    """Allocates buffers in the memory of a job. No method acquires a lock, because a buffer may end
    at any point of the program."""

    def __init__(self):
        self._free = {}         # bytes, in whole pages -> addresses
        self._pinned = {}       # address of a buffer -> function that unpins its pages
        self._is_left = False

    def take(self, job, size):
        """Returns a buffer of `size` bytes with undefined values. `job`: handle of the job."""
        pages = _whole_pages(size)
        free = self._free.setdefault(pages, [])
        try:
            address = free.pop()
        except IndexError:      # trim() may have removed the last buffer in another thread
            address = _pages_of(job, pages)
        buffer = (ctypes.c_char * size).from_address(address)
        weakref.finalize(buffer, self._give_back, address, pages).atexit = False
        return buffer

    def _give_back(self, address, pages):
        if self._is_left:
            _munmap(address, pages)
        else:
            self._free[pages].append(address)

    def pin(self, address, size, pin, unpin):
        """Calls pin(address, whole pages) for a buffer, once for all buffers at that address."""
        if address not in self._pinned:
            pin(address, _whole_pages(size))
            self._pinned[address] = unpin

    def leave(self, job):
        """Called before the process leaves the job: buffers that end later free their own
        memory."""
        self._is_left = True
        for address, unpin in self._pinned.items():
            unpin(address)
        self._pinned.clear()
        self.trim(job)

    def trim(self, job):
        """Frees pages that no buffer uses, except pinned pages."""
        for addresses in list(self._free.values()):
            kept = []
            while addresses:
                address = addresses.pop()
                if address in self._pinned:
                    kept.append(address)
                else:
                    lib.gp_free(job, address)
            addresses.extend(kept)


def _whole_pages(size):
    return max(-(-size // mmap.PAGESIZE), 1) * mmap.PAGESIZE


def _pages_of(job, size):
    memory = ctypes.c_void_p()
    check(lib.gp_alloc(job, size, ctypes.byref(memory)))
    check(lib.gp_keep(job, memory))
    return memory.value
