"""Makes a forked process a worker: environment, title, random numbers, and then its script."""
import ctypes
import os

from . import modules
from .command import parse

ROOM = b'_GRADPOOL_ROOM'        # its value is memory for variables of a worker
_COOKIE = b'_GRADPOOL_WORKER'
# Fields of /proc/self/stat behind the name of the process: see proc(5).
_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT = 45, 46, 47

_places = {}    # name -> (address, bytes) of memory that /proc shows of this process


def find_room():
    """Finds the memory in which /proc/PID/environ and /proc/PID/cmdline begin. Called before the
    environment is changed."""
    with open('/proc/self/stat', 'rb') as file:
        fields = file.read().rpartition(b')')[2].split()
    arguments, end, begin = (int(fields[i]) for i in (_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT))
    _places['cmdline'] = arguments, end - arguments
    with open('/proc/self/environ', 'rb') as file:
        data = file.read()
    at = 0
    for text in data.split(b'\0'):
        name = text.partition(b'=')[0]
        if name in (ROOM, _COOKIE):
            _places[name] = begin + at, len(text)
        at += len(text) + 1


def become(start):
    """Runs the command of the start. Called in a new process; returns when its script has ended."""
    start.receive()
    _set_environment(start.environment)
    _set_title(start.words)
    modules.reseed()
    start.announce()
    parse(start.words).run()


def _set_environment(environment):
    """Replaces the environment. The cookie gets the number of this process."""
    if _COOKIE in environment:
        fields = environment[_COOKIE].split(b':', 4)
        fields[3] = b'%010d' % os.getpid()
        environment[_COOKIE] = b':'.join(fields)
    before = dict(os.environb)
    os.environ.clear()
    os.environb.update(environment)
    _show_environment(environment, before)


def _show_environment(environment, before):
    """Writes new variables, the cookie first, to the memory that /proc/PID/environ shows: pools and
    studies find processes there."""
    for name in _COOKIE, ROOM:
        _write(_places.get(name), b'')
    new = [name for name in environment if environment[name] != before.get(name)]
    new.sort(key=lambda name: name != _COOKIE)
    room, text = _places.get(ROOM), b''
    for name in new:
        more = b'%s=%s\0' % (name, environment[name])
        if room and len(text) + len(more) <= room[1]:
            text += more
    _write(room, text)


def _set_title(words):
    """Makes `ps` show the command of the worker, as long as that of the parent."""
    place = _places.get('cmdline')
    text = b'\0'.join(map(os.fsencode, words))
    _write(place, text[:place[1] - 1] if place else b'')


def _write(place, text):
    if place:
        ctypes.memset(place[0], 0, place[1])
        ctypes.memmove(place[0], text, len(text))
