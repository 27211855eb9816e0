"""Where a thread that runs is: functions of its stack, as far as addresses on it tell. A debugger
knows more, and needs none of the thread's host; this needs ptrace and binutils."""
import contextlib
import ctypes
import os
import struct
import subprocess
import time

SEIZE, INTERRUPT, GET_REGISTERS, DETACH = 0x4206, 0x4207, 0x4204, 17
STATUS_REGISTERS, OF_ANY_THREAD = 1, 0x40000000   # NT_PRSTATUS, __WALL
PLACES = {'x86_64': (16, 19), 'aarch64': (32, 31)}  # of instruction and stack pointer
STOP_S = 0.5
STACK_BYTES = 4096
SHOWN = 8

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Vector(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('bytes', ctypes.c_size_t)]


def stack_of(pid, tid):
    """Lines, the innermost function first; none where the kernel shows nothing."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, struct.error):
        if _ptrace(SEIZE, tid, None, None) == 0:
            try:
                return [name_of(*place) for place in places(pid, tid)]
            finally:
                _ptrace(DETACH, tid, None, None)
    return []


def places(pid, tid):
    """(file, offset) of the instruction, and of what may be return addresses."""
    instruction, stack = pointers(tid)
    with open(f'/proc/{pid}/mem', 'rb', buffering=0) as memory:
        memory.seek(stack)
        words = memory.read(STACK_BYTES)
        words = words[:len(words) // 8 * 8]
    code, found = code_of(pid), []
    for address in (instruction, *struct.unpack(f'{len(words) // 8}Q', words)):
        for first, end, offset, path in code:
            if first <= address < end and len(found) < SHOWN:
                found.append((path, address - first + offset))
    return found


def pointers(tid):
    _ptrace(INTERRUPT, tid, None, None)
    deadline = time.monotonic() + STOP_S
    while os.waitpid(tid, os.WNOHANG | OF_ANY_THREAD)[0] == 0:
        if time.monotonic() > deadline:
            raise TimeoutError(f'thread {tid} does not stop')
        time.sleep(STOP_S / 100)
    registers = (ctypes.c_uint64 * 64)()
    vector = Vector(ctypes.addressof(registers), ctypes.sizeof(registers))
    _ptrace(GET_REGISTERS, tid, STATUS_REGISTERS, ctypes.addressof(vector))
    return [registers[place] for place in PLACES.get(os.uname().machine, (63, 63))]


def code_of(pid):
    """(first address, end, offset in the file, file) of each mapping with code."""
    mapped = []
    with open(f'/proc/{pid}/maps', encoding='utf-8') as maps:
        for fields in map(str.split, maps):
            if 'x' in fields[1] and len(fields) > 5 and fields[5].startswith('/'):
                first, end = (int(word, 16) for word in fields[0].split('-'))
                mapped.append((first, end, int(fields[2], 16), fields[5]))
    return mapped


def name_of(path, offset):
    asked = subprocess.run(['addr2line', '-f', '-p', '-s', '-e', path, hex(offset)], timeout=10,
                           capture_output=True, text=True, check=True)
    return f'{asked.stdout.strip() or "?"} ({os.path.basename(path)}+{offset:#x})'
