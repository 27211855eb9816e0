"""python3 -m gradpool.elastic: the runner's command. See ELASTIC.md."""
import argparse
import os
import sys

from .runner import Runner

WORKERS_MAX = 768
_PROGRAM = 'python3 -m gradpool.elastic'
_HELP = """\
Starts the workers of SCRIPT, whose Run trains with workers that join and leave. SIGUSR1 adds a
worker, SIGUSR2 removes one. A killed worker is replaced. Ctrl-C ends all workers."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        _fail(f'{message}; see {_PROGRAM} --help')


def _fail(text):
    print(f'gradpool: {_PROGRAM}: {text}', file=sys.stderr)
    sys.exit(2)


def _parser():
    parser = _Parser(prog=_PROGRAM, description=_HELP, allow_abbrev=False)
    parser.add_argument('--workers', type=int, default=1, metavar='N',
                        help='number of workers at the start (1)')
    parser.add_argument('--workers-max', type=int, metavar='N',
                        help='largest number of workers (--workers)')
    parser.add_argument('--job', metavar='NAME',
                        help='name of the job (GRADPOOL_JOB, or a new name)')
    parser.add_argument('--endpoint', metavar='ENDPOINT',
                        help='the service (GRADPOOL_ENDPOINT)')
    parser.add_argument('--leave-timeout', type=float, default=30, metavar='S',
                        help='seconds in which a removed worker leaves before it is ended (30)')
    parser.add_argument('--start-timeout', type=float, default=1800, metavar='S',
                        help='seconds in which a new worker begins a step (1800); 0: no limit')
    parser.add_argument('script', metavar='SCRIPT', help='Python script')
    parser.add_argument('arguments', nargs=argparse.REMAINDER, metavar='...',
                        help='arguments of the script')
    return parser


def options_of(words):
    """Returns the options. Wrong options end the process with status 2."""
    options = _parser().parse_args(words)
    if options.workers_max is None:
        options.workers_max = options.workers
    if not 1 <= options.workers <= options.workers_max <= WORKERS_MAX:
        _fail(f'--workers {options.workers} and --workers-max {options.workers_max}: expected 1 '
              f'to {WORKERS_MAX}, and no more workers than --workers-max; change them')
    for name in 'leave_timeout', 'start_timeout':
        if not 0 <= getattr(options, name) <= 1e6:
            _fail(f'--{name.replace("_", "-")} {getattr(options, name)}: expected 0 to 1000000 '
                  'seconds; change it')
    if not os.path.isfile(options.script):
        _fail(f"script '{options.script}' does not exist; give the path of a Python script")
    options.endpoint = options.endpoint or os.environ.get('GRADPOOL_ENDPOINT')
    if not options.endpoint:
        _fail('no service is named; give --endpoint gradpool://HOST:PORT, or set '
              'GRADPOOL_ENDPOINT')
    options.job = (options.job or os.environ.get('GRADPOOL_JOB')
                   or f'elastic-{os.getpid()}-{os.urandom(4).hex()}')
    return options


if __name__ == '__main__':
    sys.exit(Runner(options_of(sys.argv[1:])).run())
