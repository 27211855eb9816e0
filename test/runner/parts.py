"""Suites and builds of a run, short or long.

A suite is a word in `suite:` of a test in a meson.build. The suites in LONG are the named parts of
`test/run.sh --long`. A test with a long form has the name of its part as a suite."""
import dataclasses

from builds import ADDRESS, CHECKED, THREAD, Build

# Suites of the sanitizer builds. Their programs consist only of our own code. THREADED lacks
# parsers, pure functions and simulated worlds, because these have only one thread.
THREADED = {'unit', 'e2e-sanitized'}
SANITIZED = THREADED | {'pure', 'fuzz', 'sim'}
ONLY_LONG = {'torch-whole', 'demo', 'stragglers', 'explore', 'platform'}


@dataclasses.dataclass
class Part:
    """A part of `--long`: `suites` of `builds`, in their long form."""
    minutes: int
    what: str
    builds: tuple
    suites: set = frozenset()   # empty: the suite with the name of the part


LONG = {
    'counts': Part(25, 'unit and parser tests with their full counts, in three builds',
                   ('plain', 'address', 'thread'), SANITIZED - {'sim', 'e2e-sanitized'}),
    'simulate': Part(25, 'simulated worlds by the ten thousand, and models searched further',
                     ('plain', 'address'), {'sim', 'model'}),
    'migrations': Part(10, 'a thousand migrations, and a death at every step of one', ('plain',)),
    'copies': Part(10, 'replicas under losses, resizes and moves', ('plain',)),
    'elastic': Part(10, 'workers that join, leave and die, at every step of a resize', ('plain',)),
    'memory': Part(5, 'tensors of 1 GiB beside services that may hold 256 and 64 MiB', ('plain',)),
    'large': Part(5, 'gigabytes, and hundreds of jobs', ('plain',)),
    'pytorch': Part(20, "PyTorch's own distributed tests, each rank an interpreter; and on gloo",
                  ('plain',), {'torch-whole'}),
    'demo': Part(8, 'bench/demo.sh over both transports and on three nodes', ('plain',)),
    'stragglers': Part(8, 'a slow lane is found and relieved', ('plain',)),
    'fences': Part(15, "a victim's rounds and others' joins beside each hostile load", ('plain',)),
    'platform': Part(55, 'all of it on Debian 13, in a clean root (root; 12 GB)', ('plain',)),
    'faults': Part(50, 'kills, planned ends, stops and cuts at random beside a hostile tenant, ten '
                   'seeds of five minutes each; `faults 4-8` takes seeds', ('plain',)),
    'fuzz': Part(52, 'the fuzzers explore, ten minutes each', ('explore',), {'explore'}),
}


def make_builds():
    return {build.name: build for build in (
        Build('plain', 'build'),
        Build('address', 'build-address', ADDRESS),
        Build('thread', 'build-thread', THREAD),
        Build('explore', 'build-explore', [
            *CHECKED, '-Db_sanitize=address,undefined', '-Dc_args=-g1 -fsanitize=fuzzer-no-link'],
            'clang'))}


def short_suites(build):
    """Returns the suites of a build in a run without --long. None: all suites except the suites
    that only --long runs."""
    return {'address': SANITIZED, 'thread': THREADED}.get(build)


def belongs(suites, wanted):
    return bool(suites & wanted) if wanted is not None else not suites & ONLY_LONG


def list_parts():
    lines = [f'  {name:12} {part.minutes:3} min  {part.what}' for name, part in LONG.items()]
    return '\n'.join(lines)
