"""Joins a job whose workers join and leave. Imports no torch."""
import errno
import os
import sys
import time

from ..client import connect, job_from_environment
from ..errors import GradpoolError, mismatch
from . import control

_PAUSE_S = 0.05     # pause between two attempts to join before the job grows
# exit code of a process that its pool has replaced, which is no failure of the job
_STALE = 75


def workers_max_of_launcher():
    """Returns the largest number of workers that the launcher gives to the job: the runner (python3
    -m gradpool.elastic) or a pool (gradpool run --workers-max). 0: the launcher gives none."""
    text = os.environ.get('GRADPOOL_WORKERS_MAX') or '0'
    if not (text.isascii() and text.isdecimal()):
        raise mismatch(f"GRADPOOL_WORKERS_MAX is '{text}', expected a number of workers; unset the "
                       'variable, or correct it')
    return control.link().place['workers_max'] or int(text)


def place_of_launcher():
    """Returns (rank, workers at the start of the job) from the launcher."""
    place = control.link().place
    if place['rank'] is not None:
        return place['rank'], place['workers']
    return job_from_environment()[1:]


def join(name, rank, workers, workers_max, endpoint, timeout_ms):
    """Joins the job. Returns the Client and the Job. A late worker is refused until the job grows,
    so the call tries again until the deadline. Arguments of None are those of the launcher."""
    workers_max = workers_max or workers_max_of_launcher()
    if rank is None or workers is None:
        rank, workers = place_of_launcher()
    client = connect(endpoint)
    until_s = time.monotonic() + timeout_ms / 1e3
    while True:
        try:
            return client, client.join(name, rank, workers, workers_max=workers_max,
                                       on_worker_loss='continue')
        except GradpoolError as error:
            if error.errno == errno.ESTALE and os.environ.get('GRADPOOL_INCARNATION'):
                client.close()
                print(error, file=sys.stderr)
                raise SystemExit(_STALE) from None
            if (error.errno not in (errno.EPROTO, errno.ESTALE) or rank < workers
                    or time.monotonic() > until_s):
                client.close()
                raise
        time.sleep(_PAUSE_S)
