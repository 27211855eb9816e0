"""elastic.run: calls a training function again after each change of workers."""
import functools
import sys

from ..._native.failing import leaving_with
from ...errors import PeerLost
from .. import _door
from .worlds import worlds_of


class HostsUpdatedInterrupt(RuntimeError):
    """Raised by State.commit() and State.check_host_updates() on all workers at the same point, if
    workers join or leave. The state stays as it is, and elastic.run calls the function again."""

    def __init__(self, skip_sync=False):
        super().__init__('workers join or leave; elastic.run calls the function again')
        self.skip_sync = skip_sync


def run(function):
    """Decorates a training function, function(state, ...), whose workers may join and leave.

    The function is called after State.sync(), with the same workers until it returns, or raises
      PeerLost               a worker was lost: all others restore their last commit
      HostsUpdatedInterrupt  the job has grown or shrunk: nothing is restored
    Then the workers that are present form a new world, with new rank() and size(), call the reset
    callbacks, and the function again. All other errors end the function. A worker that the job
    does not need any more ends with exit code 0."""
    @functools.wraps(function)
    def wrapper(state, *arguments, **options):
        worlds = worlds_of()
        state.enter(worlds)
        try:
            if worlds.begin():
                state.on_reset()
            while True:
                error, result = _call(worlds, function, state, arguments, options)
                if error is None:
                    return result
                worlds.renew(error if isinstance(error, PeerLost) else None)
                state.on_reset()
        except BaseException as error:
            with leaving_with(error):
                _door.leave()
                worlds.close()
            raise
    return wrapper


def _call(worlds, function, state, arguments, options):
    """Calls the function once. Returns (None, result), or the error after which the workers meet,
    and None."""
    try:
        state.sync()
        worlds.holds = True
        result = function(state, *arguments, **options)
        worlds.end()
    except PeerLost as error:
        print(f'gradpool: {error}', file=sys.stderr, flush=True)
        state.restore()
        return error.with_traceback(None), None     # frees the loaders of the function
    except HostsUpdatedInterrupt as error:
        return error.with_traceback(None), None
    return None, result
