"""python3 -m gradpool.explore: the commands `gradpool explore` and `gradpool trials`, which check
their options and start this module. See EXPLORING.md."""
import argparse
import json
import os
import runpy
import signal
import sys
import traceback

from ..errors import GradpoolError
from . import locks, service, store as stores, study as studies
from .table import summary, table_of
from .trial import best_of

_OK, _FAILED, _USAGE, _NOTHING = range(4)


def _say(text):
    print(f'gradpool explore: {text}', file=sys.stderr)


def _plain_parser():
    return argparse.ArgumentParser(prog='python3 -m gradpool.explore', allow_abbrev=False)


def _parser():
    parser = _plain_parser()
    parser.add_argument('--slots', type=int)
    parser.add_argument('--resting-max', type=int)
    parser.add_argument('--rest', choices=('sleep', 'exit'))
    for name in '--folder', '--resume', '--preload', '--site', '--endpoint', '--engine':
        parser.add_argument(name)
    parser.add_argument('--slurm', action='append', default=[])
    parser.add_argument('script', nargs='?')
    parser.add_argument('arguments', nargs=argparse.REMAINDER)
    return parser


def _interrupt(number, frame):
    raise KeyboardInterrupt


def explore(words):
    """Runs the script of a study. Returns the exit code."""
    given = _parser().parse_args(words)
    options = studies.options
    if given.resume:
        if not _has_study(given.resume):
            return _missing(given.resume)
        settings = stores.Store(given.resume).settings
        if not _has_endpoint(settings, given.endpoint):
            return _USAGE
        options.folder, options.resume = os.path.abspath(given.resume), True
        script, arguments = settings['script'], settings['arguments']
        os.chdir(settings['cwd'])
    else:
        script, arguments = os.path.abspath(given.script), given.arguments
        options.folder, options.slots = given.folder, given.slots
        options.site, options.endpoint = given.site, given.endpoint
        options.resting_max = 0 if given.rest == 'exit' else given.resting_max
        options.preload, options.engine, options.slurm = given.preload, given.engine, given.slurm
    for number in signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(number) is not signal.SIG_IGN:      # as nohup does
            signal.signal(number, _interrupt)
    sys.argv[:] = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    return _run(script)


def _has_endpoint(settings, endpoint):
    """Returns whether a resumed study uses this service. None: no service is named."""
    kept = settings['endpoint'] or service.ENDPOINT
    if endpoint is None or endpoint == kept and not settings['slots']:
        return True
    where = 'a service of its own' if settings['slots'] else f'the service at {kept}'
    _say(f"study {settings['name']} uses {where}, and --endpoint or GRADPOOL_ENDPOINT names "
         f'{endpoint}; leave out --endpoint, and unset GRADPOOL_ENDPOINT')
    return False


def _run(script):
    if not os.path.isfile(script):
        _say(f"script '{script}' does not exist; give the path of a Python script")
        return _USAGE
    try:
        runpy.run_path(script, run_name='__main__')
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except GradpoolError as error:
        _say(error)
        return _FAILED
    except Exception:
        traceback.print_exc()
        return _FAILED
    finally:
        studies.close_all()
        _drop_unread_output()
    if not studies.has_made():
        _say(f'{script} has made no Study, so nothing was run; see EXPLORING.md')
        return _FAILED
    return _OK


def _drop_unread_output():
    """Drops buffered output after its reader has ended. Otherwise Python fails to write this output
    at the end of the process, and exits with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---- gradpool trials ----

def _newest_folder():
    """Returns the folder of the newest study here; None: there is none."""
    found = [name for name in os.listdir('.') if _has_study(name)]
    return max(found, default=None,
               key=lambda name: os.stat(os.path.join(name, stores.NAME)).st_mtime)


def _has_study(folder):
    return os.path.exists(os.path.join(folder, stores.NAME))


def _missing(folder):
    print(f'gradpool: there is no study in {folder or "a folder here"}; give the folder of a study',
          file=sys.stderr)
    return _NOTHING


def trials(words):
    """Shows the trials of a study. Returns the exit code."""
    parser = _plain_parser()
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--kill', type=int)
    parser.add_argument('--folder')
    given = parser.parse_args(words)
    folder = given.folder or _newest_folder()
    if not folder or not _has_study(folder):
        return _missing(folder)
    store = stores.Store(folder)
    if given.kill is not None:
        return _kill(store, folder, given.kill)
    _show(store, folder, given.json)
    return _OK


def _show(store, folder, as_json):
    rows, settings = store.trials(), store.settings
    is_running = locks.is_locked(folder)
    if as_json:
        print(json.dumps(stores.document_of(settings, rows, is_running), indent=1))
        return
    best = best_of(rows, settings['mode'])
    print('\n'.join(table_of(rows, settings['metric'], None, best)))
    how = 'runs' if is_running else f'does not run; gradpool explore --resume {folder}'
    print(f"study {settings['name']}: {summary(rows)}; the study {how}")


def _kill(store, folder, number):
    rows = store.trials()
    if not 1 <= number <= len(rows):
        print(f'gradpool trials: there is no trial {number} in {folder}, which has {len(rows)} '
              'trials; see gradpool trials', file=sys.stderr)
        return _NOTHING
    if rows[number - 1].is_over:
        print(f'trial {number} has ended already: {rows[number - 1].state}')
        return _OK
    store.order(number)
    when = 'ends now' if locks.is_locked(folder) else 'ends when the study is resumed'
    print(f'trial {number} {when}')
    return _OK


def main(words):
    commands = {'explore': explore, 'trials': trials}
    if words[:1] == [] or words[0] not in commands:
        _say('expected explore or trials; see gradpool help explore')
        return _USAGE
    try:
        return commands[words[0]](words[1:])
    except GradpoolError as error:
        _say(error)
        return _FAILED


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
