"""Runs functions of Python tests in several processes.

A test module names one of its functions. The function is called once for each rank, in a separate
process:

    def rank_adds(rank, workers): return rank + 1
    run_ranks('rank_adds', 2) -> [1, 2]

The module ends with main(). main() runs the tests or, in a new interpreter, one rank. Importing
torch takes two seconds of CPU time. With main(globals(), forks=True) the tests import it once, and
ranks are forks."""
import contextlib
import gc
import importlib
import json
import multiprocessing
import multiprocessing.util
import os
import resource
import subprocess
import sys
import traceback

import harness
import tap
from harness import BUILD

RANK_TIMEOUT_S = 180  # time limit in seconds: several processes import torch on a busy machine

# Set here and in every rank before gradpool is imported.
os.environ.setdefault('GRADPOOL_LIBRARY', str(BUILD / 'client' / 'libgradpool.so'))


_forks = False


class Fork(subprocess.Popen):
    """A rank as a fork of this process, with the methods of Popen. It has no open descriptors of
    this process and runs none of its exit handlers. It ends as a process of multiprocessing
    does."""

    def _execute_child(self, args, *rest):
        environment, pipes = rest[5], rest[9:15]
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(args, pipes, environment)
        self._child_created = True
        self._close_pipe_fds(*pipes)

    @staticmethod
    def _become(args, pipes, environment):
        """Runs a rank in the fork. Does not return."""
        status = 1
        try:
            for end, fd in zip((pipes[0], pipes[3], pipes[5]), range(3)):
                os.dup2(end, fd)
            os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            os.environ.clear()
            os.environ.update(environment)
            multiprocessing.util._finalizer_registry.clear()
            sys.modules['torch'].set_num_threads(1)
            status = one_rank(vars(sys.modules['__main__']), *args[-3:])
            multiprocessing.util._exit_function()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def start_ranks(function, workers, prefixes=None, **environment):
    """Starts processes that call `function`(rank, workers) of the running script. Does not wait.

    prefixes  {rank: words in front of its command}"""
    return [start_rank(function, rank, workers, (prefixes or {}).get(rank, ()), **environment)
            for rank in range(workers)]


def start_rank(function, rank, workers, prefix=(), **environment):
    """Starts one of the processes of start_ranks()."""
    how = Fork if _forks and not prefix else subprocess.Popen
    return how([*prefix, sys.executable, os.path.abspath(sys.argv[0]), '--rank', function,
                str(rank), str(workers)],
               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
               env={**os.environ, 'OMP_NUM_THREADS': '1', **environment})


def finish_ranks(processes):
    """Returns results in rank order. If a rank has raised an exception, the test fails with its
    traceback."""
    try:
        ended = [harness.finish(process, RANK_TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    wrong = [f'rank {rank} ended with {process.returncode}:\n{errors}'
             for rank, (process, (_, errors)) in enumerate(zip(processes, ended))
             if process.returncode != 0]
    if wrong:
        raise AssertionError('\n'.join(wrong))
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


def run_ranks(function, workers, **environment):
    """Calls start_ranks(), then finish_ranks()."""
    return finish_ranks(start_ranks(function, workers, **environment))


def apart(function, *arguments):
    """Calls the function in a fork and returns the result. After a backward() in a process, torch 2
    cannot run one in its forks, and ranks are forks."""
    with multiprocessing.get_context('fork').Pool(1) as pool:
        return pool.apply(function, arguments)


@contextlib.contextmanager
def expects(case, kind, *words):
    """The block must raise `kind` with a text that contains all `words`."""
    with case.assertRaises(kind) as raised:
        yield
    for word in words:
        case.assertIn(word, str(raised.exception))


def one_rank(module, function, rank, workers):
    """Runs one rank and returns its exit status. Its result is the last line on stdout."""
    try:
        result = module[function](int(rank), int(workers))
    except BaseException:
        traceback.print_exc()
        return 1
    print('\n' + json.dumps(result), flush=True)
    return 0


def main(module, forks=False):
    """Runs all tests of the module `__main__`, or one rank of a test."""
    global _forks
    if sys.argv[1:2] == ['--rank']:
        sys.exit(one_rank(module, *sys.argv[2:5]))
    if forks:
        importlib.import_module('torch.distributed')
        gc.collect()
        gc.freeze()     # garbage collections of a rank then skip all objects of torch
        _forks = True
    return tap.main()
