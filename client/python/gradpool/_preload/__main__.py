"""python3 -m gradpool._preload DESCRIPTOR MODULES COMMAND: the parent of workers. Started by a pool
(svc/pool/preload.c) or a study, which has the other end of the socket DESCRIPTOR.

The parent sends one message: `ready`, or the reason why no worker can be forked. After the loop of
forks this process is a worker."""
import atexit
import os
import socket
import sys

from . import become, ending, modules, parent
from .command import parse
from .refusal import Refusal


def _prepare(names, words):
    """Imports the modules as the command would."""
    command = parse(words)
    options = [*command.options, '-m', 'gradpool._preload']
    if sys.orig_argv[1:1 + len(options)] != options:
        os.execv(sys.executable, [words[0], *options, *sys.argv[1:]])
    become.find_room()
    command.set_path()
    modules.load(names)


def main():
    atexit.register(ending.end)
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        _prepare(sys.argv[2].split(','), sys.argv[3:])
    except Refusal as refusal:
        control.send(str(refusal).encode())
        return
    control.set_inheritable(False)
    try:
        become.become(parent.serve(control))
    except SystemExit as error:
        ending.note(error.code)
        raise
    ending.note(None)


if __name__ == '__main__':
    main()
