"""Imports modules in the parent. Refuses a module after which a fork differs from a new process:
threads and processes that the module has started, and random numbers that the module has used."""
import gc
import importlib
import os
import random
import sys
import traceback

from .refusal import Refusal

_SEED_LEAST = 1 << 32   # a random seed of torch has 53 bits or more, a seed from a script up to 32


def load(names):
    """Imports the modules in this order. Raises Refusal."""
    for name in names:
        before = _random_states()
        _import(name)
        _check_processes(name)
        _check_random(name, before)
    _check_cuda(names)
    gc.collect()
    gc.freeze()     # the collector of a worker writes to no page that it shares with the parent


def _import(name):
    try:
        importlib.import_module(name)
    except BaseException as error:
        traceback.print_exc()
        raise Refusal(f"module '{name}' cannot be imported: {type(error).__name__}: "
                      f'{_line_of(error)}; see preload.log, and correct --preload') from None


def _line_of(error):
    text = str(error).strip().partition('\n')[0]
    return ''.join(one if one.isprintable() else '?' for one in text)[:200]


def _check_processes(name):
    threads = len(os.listdir('/proc/self/task')) - 1
    if threads:
        raise Refusal(f"module '{name}' has started {threads} threads, which a forked worker would "
                      'lack; leave the module out, or set OPENBLAS_NUM_THREADS=1 if a library for '
                      'linear algebra has started them')
    with open(f'/proc/self/task/{os.getpid()}/children', encoding='ascii') as file:
        children = len(file.read().split())
    if children:
        raise Refusal(f"module '{name}' has started {children} processes, which all workers would "
                      'share; leave the module out')


def _random_states():
    """Returns {module: state} of the generators that exist."""
    states = {'random': random.getstate()}
    if 'numpy.random' in sys.modules:
        kind, keys, *rest = sys.modules['numpy.random'].get_state()
        states['numpy.random'] = (kind, keys.tobytes(), *rest)
    if 'torch' in sys.modules:
        states['torch'] = sys.modules['torch'].get_rng_state().tolist()
    return states


def _check_random(name, before):
    after = _random_states()
    changed = [one for one, state in before.items() if after[one] != state]
    if 'torch' in after and sys.modules['torch'].initial_seed() < _SEED_LEAST:
        changed.append('torch')
    if changed:
        raise Refusal(f"module '{name}' uses random numbers of {changed[0]} while it is imported, "
                      'and workers get random numbers of their own; leave the module out')


def reseed():
    """Gives a forked worker random numbers of its own. Python reseeds `random` itself."""
    if 'numpy.random' in sys.modules:
        sys.modules['numpy.random'].seed()
    if 'torch' in sys.modules:
        sys.modules['torch'].default_generator.seed()
    if 'multiprocessing.process' in sys.modules:
        sys.modules['multiprocessing.process'].current_process().authkey = os.urandom(32)


def _check_cuda(names):
    """Refuses modules that have used CUDA: a forked process cannot use CUDA then."""
    cuda = sys.modules.get('torch.cuda')
    if cuda is None or not hasattr(cuda, '_is_in_bad_fork'):
        return
    child = os.fork()
    if child == 0:
        os._exit(1 if cuda._is_in_bad_fork() else 0)
    if os.waitpid(child, 0)[1]:
        raise Refusal(f"one of the modules {', '.join(names)} has used CUDA while it was imported, "
                      'so forked workers could not use CUDA; leave the module out')
