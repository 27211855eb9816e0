"""For tests of the Python package: functions run by several processes.

A test module calls a function of its own by name, once a rank, each in a fresh interpreter:

    def rank_adds(rank, workers): return rank + 1
    run_ranks('rank_adds', 2) -> [1, 2]

It ends with main(), which is either the tests or, in such an interpreter, one rank."""
import contextlib
import json
import os
import subprocess
import sys
import traceback

import tap
from harness import BUILD

RANK_TIMEOUT_S = 180  # torch is imported many times over on a loaded machine

# Before gradpool is imported, here and in every rank.
os.environ.setdefault('GRADPOOL_LIBRARY', str(BUILD / 'client' / 'libgradpool.so'))


def start_ranks(function, workers, prefixes=None, **environment):
    """Processes that call `function`(rank, workers) of the running script, not waited for.

    prefixes  {rank: words that its command begins with}"""
    words = [sys.executable, os.path.abspath(sys.argv[0]), '--rank', function]
    return [subprocess.Popen(
        [*(prefixes or {}).get(rank, ()), *words, str(rank), str(workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, 'OMP_NUM_THREADS': '1', **environment}) for rank in range(workers)]


def finish_ranks(processes):
    """What each returned, in rank order. A rank that raised fails the test with its traceback."""
    try:
        ended = [process.communicate(timeout=RANK_TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    failed = [f'rank {rank} ended with {process.returncode}:\n{errors}'
              for rank, (process, (_, errors)) in enumerate(zip(processes, ended))
              if process.returncode != 0]
    if failed:
        raise AssertionError('\n'.join(failed))
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


def run_ranks(function, workers, **environment):
    """start_ranks() and finish_ranks()."""
    return finish_ranks(start_ranks(function, workers, **environment))


@contextlib.contextmanager
def expects(case, kind, *words):
    """The block must raise `kind`; its text holds all `words`."""
    with case.assertRaises(kind) as raised:
        yield
    for word in words:
        case.assertIn(word, str(raised.exception))


def main(module):
    """One rank of a test, or all tests of the module `__main__`."""
    if sys.argv[1:2] != ['--rank']:
        return tap.main()
    function, rank, workers = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    try:
        result = module[function](rank, workers)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    print('\n' + json.dumps(result), flush=True)
    return 0
