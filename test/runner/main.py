#!/usr/bin/python3
"""Runs all tests of gradpool: set-up, builds, every case, one summary line. Started by
test/run.sh."""
import argparse
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))

import builds  # noqa: E402
import parts  # noqa: E402
from program import Program, hear_interrupts  # noqa: E402
from schedule import Schedule  # noqa: E402
from summary import Summary  # noqa: E402

USAGE = f'''\
usage: test/run.sh [--quick | --long PART... | --only [BUILD:]PROGRAM... [--case NAME]]

  (nothing)      every case, short and seeded, in three builds: plain, address+undefined
                 and thread sanitizer
  --quick        the plain build only
  --long PART... the named parts with their full counts; alone, it lists them
  --only         programs by name, of the plain build or of BUILD; one case of them with --case

The line before the last ones names what was skipped. The last line is "N passed, N failed, N
skipped"; the exit code is 0 only if nothing failed.

Parts, with minutes on two cores:
{parts.list_parts()}
'''


def parse(arguments):
    parser = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS, allow_abbrev=False)
    parser.error = lambda text: refuse(f'test/run.sh: {text}\n{USAGE}')
    for name in ('--help', '-h', '--quick'):
        parser.add_argument(name, action='store_true')
    parser.add_argument('--long', nargs='*')
    parser.add_argument('--only', nargs='+')
    parser.add_argument('--case')
    options = parser.parse_args(arguments)
    if options.help or options.h or options.long == []:
        print(USAGE, end='')
        sys.exit(0)
    if sum(map(bool, (options.quick, options.long, options.only))) > 1:
        parser.error('--quick, --long and --only exclude each other')
    if options.case and not options.only:
        parser.error('--case: only beside --only')
    return options


def refuse(text):
    print(text, end='', file=sys.stderr)
    sys.exit(2)


def seeds(words):
    """Returns (parts, seeds). "faults 4-8" means a part and its seeds."""
    names = [word for word in words if word in parts.LONG]
    ranges = [word for word in words if word not in parts.LONG]
    for word in ranges:
        found = re.fullmatch(r'(\d+)(?:-(\d+))?', word)
        if not (found and int(found[1]) <= int(found[2] or found[1]) and 'faults' in names):
            refuse(f"test/run.sh: '{word}' is no part; `test/run.sh --long` lists them\n")
    if len(ranges) > 1:
        refuse('test/run.sh: one range of seeds, such as 4-8\n')
    return names, ranges[0] if ranges else None


class Run:
    """One run of some programs of some builds, in one queue. Programs of sanitizer builds slow down
    all others, so they come after those of the plain build."""

    def __init__(self, title=''):
        self.builds = parts.make_builds()
        self.summary = Summary(title)
        self.environment = {**os.environ, 'CMOCKA_MESSAGE_OUTPUT': 'TAP'}
        # A run starts hundreds of interpreters, which share the compiled modules of the tree.
        self.environment.pop('PYTHONDONTWRITEBYTECODE', None)

    def run(self, chosen, names=()):
        """`chosen`: build name -> function that returns whether a program (name, suites) belongs to
        the run. Each of `names` must be a program of the run."""
        programs = []
        # all builds are configured before a compiler starts
        for name in list(self.configure(chosen)):
            programs += self.make(self.builds[name], chosen[name])
        for word in names:
            if all(word not in (program.name, str(program)) for program in programs):
                self.summary.add_unknown(word)
        if programs:
            self.test(programs)
        return self.summary.close()

    def configure(self, names):
        """Configures all builds at the same time, because each needs one process. Yields the
        configured builds."""
        started = {name: self.builds[name].configure() for name in names}
        for name, process in started.items():
            if process.wait() == 0 or self.builds[name].show_failure():
                yield name
            else:
                self.summary.add_failed_build(name)

    def make(self, build, belongs):
        """Returns the programs of the build; none if the build failed."""
        programs = self.programs(build, belongs)
        self.summary.say(f'{build.name}: building in {build.folder.name}/')
        if not build.make([program.test for program in programs]):
            self.summary.add_failed_build(build.name)
            return []
        self.summary.expect(build.name, len(programs))
        return programs

    def programs(self, build, belongs):
        if build.name != 'plain':
            build.environment.update(builds.sanitizer_options())
        if build.name == 'thread':
            build.wrapper = builds.steady_memory()
        programs = [Program(test, build, -test['priority']) for test in build.tests()]
        return [p for p in programs if belongs(p.name, p.suites)]

    def test(self, programs):
        for build in self.builds.values():
            if count := sum(program.build is build for program in programs):
                self.summary.say(f'{build.name}: {count} programs')
        Schedule(programs, self.summary.add, self.environment).run()


def whole(quick):
    names = ['plain'] if quick else ['plain', 'address', 'thread']
    return {name: lambda _, suites, wanted=parts.short_suites(name): parts.belongs(suites, wanted)
            for name in names}


def long_part(name):
    part = parts.LONG[name]
    wanted = part.suites or {name}
    return {build: lambda _, suites, short=parts.short_suites(build):
            bool(suites & wanted) and (short is None or bool(suites & short))
            for build in part.builds}


def named(words, known):
    """Parses the arguments of `--only`: BUILD:PROGRAM or PROGRAM."""
    chosen = {}
    for word in words:
        build, _, program = word.rpartition(':')
        if (build or 'plain') not in known:
            refuse(f"test/run.sh: no build '{build}': {', '.join(known)}\n")
        chosen.setdefault(build or 'plain', set()).add(program)
    return {build: lambda name, _, wanted=wanted: name in wanted
            for build, wanted in chosen.items()}


def run_long(names, seed_range):
    failed = 0
    for name in names:
        run = Run(name)
        run.environment['GRADPOOL_TEST_LONG'] = '1'
        if name == 'faults' and seed_range:
            run.environment['GRADPOOL_TEST_SEEDS'] = seed_range
        failed |= run.run(long_part(name))
    return failed


def main(arguments):
    options = parse(arguments)
    names, seed_range = seeds(options.long or [])
    hear_interrupts()
    for number in signal.SIGTERM, signal.SIGHUP:    # under nohup SIGHUP remains ignored
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    if not options.only:    # a filter that is set in the user's shell would hide cases
        for name in 'GRADPOOL_TEST_CASE', 'GRADPOOL_TEST_LONG', 'GRADPOOL_TEST_SEEDS':
            os.environ.pop(name, None)
    if subprocess.run([builds.ROOT / 'test/setup.sh', '--tests'], check=False).returncode:
        return 1
    print(f'gradpool tests: {os.cpu_count()} cores, Linux {os.uname().release}', flush=True)
    if options.long:
        return run_long(names, seed_range)
    run = Run()
    if options.only:
        if options.case:
            run.environment['GRADPOOL_TEST_CASE'] = options.case
        return run.run(named(options.only, run.builds), options.only)
    return run.run(whole(options.quick))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
