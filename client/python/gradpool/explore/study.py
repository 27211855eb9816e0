"""Study: the object of a sweep, which a user's script makes."""
import contextlib
import os
import socket
import sys

from ..errors import mismatch
from . import locks, pool as pools, service, slurm, store as stores
from .ending import held
from .engine import Engine
from .fleet import RESTING_MAX
from .preload import starter_of
from .rules import Never
from .table import Table
from .trial import best_of, text_of

_TURN_S = 0.25
_NAME_BYTES_MAX = 100
_made = []      # the Study of this process


class Options:
    """Options of `gradpool explore`, for the Study of its script. Without the command: none."""
    folder = site = endpoint = slots = preload = engine = resting_max = None
    slurm, resume = (), False


options = Options()


class Study:
    """A search over configurations. Each one is a trial: the command, started as a job of its own,
    whose number of workers the service chooses.

      name      of the study; its jobs are NAME/1, NAME/2, ...
      command   list of texts; {lr} in a text becomes the parameter lr of the trial
      workers   fewest and most workers of a trial
      metric    name of the reported value that decides
      mode      'min' or 'max': whether small or large values are good
      rule      ends trials early: ASHA, Hyperband, Median, Never
      searcher  chooses parameters, in place of submit(): an object with ask() and tell()
      trials    most trials of the searcher; None: until ask() returns None
      folder    of results; None: gradpool-NAME
      rest      True: trials may rest, to make room for others of the site

    `trials` and `best` are the trials so far. Raises GradpoolError."""

    def __init__(self, name, command, workers=(1, 1), metric='loss', mode='min', rule=None,
                 searcher=None, trials=None, folder=None, rest=False):
        rule = rule or Never()
        _check(name, command, workers, metric, mode, searcher)
        self.name, self.folder = name, os.path.abspath(
            options.folder or folder or f'gradpool-{name}')
        self.metric, self.mode = metric, mode
        self._submitted, self._is_over, self._own, self._engine = 0, False, None, None
        self._has_begun = False
        self._table = Table(sys.stdout)
        self._settings = {'name': name, 'command': list(command), 'workers': list(workers),
                          'metric': metric, 'mode': mode, 'rule': repr(rule), 'rest': bool(rest)}
        store = self._open_store(searcher)
        self._engine = Engine(self.folder, store, rule, searcher, trials,
                              self._options_of_pools(store), self._table.say)

    # ---- the beginning ----

    def _open_store(self, searcher):
        if _made:
            raise mismatch(f"a second Study, '{self.name}', in one process; make each in a script "
                           'of its own')
        pools.make_folder(self.folder)
        self._lock = locks.lock(self.folder)
        exists = os.path.exists(os.path.join(self.folder, stores.NAME))
        if exists and not options.resume:
            raise mismatch(f'folder {self.folder} has a study already; continue it with `gradpool '
                           f'explore --resume {self.folder}`, or give another --folder')
        if exists and searcher is not None and not hasattr(searcher, 'restore'):
            raise mismatch(f'searcher {type(searcher).__name__} has no method restore(trials), so '
                           'its study cannot be resumed; add the method')
        _made.append(self)
        return self._reopen() if exists else stores.Store.create(self.folder, {
            **self._settings, 'script': os.path.abspath(sys.argv[0]), 'arguments': sys.argv[1:],
            'cwd': os.getcwd(), 'site': options.site, 'slots': options.slots,
            'endpoint': options.endpoint, 'preload': options.preload, 'engine': options.engine,
            'slurm': list(options.slurm), 'rule_state': {},
            'resting_max': RESTING_MAX if options.resting_max is None else options.resting_max})

    def _reopen(self):
        store = stores.Store(self.folder)
        store.renew()
        for name, value in self._settings.items():
            if store.settings[name] != value:
                raise mismatch(f'study {self.name}: {name} is {value!r}, and was '
                               f'{store.settings[name]!r} when the study began; restore the '
                               'script, or begin in another folder')
        folders = [os.path.join(self.folder, f'{one.number:04d}') for one in store.trials()
                   if not one.is_over]
        slurm.check_way(store.settings, {pools.number_of(one) for one in folders} - {None})
        return store

    def _options_of_pools(self, store):
        """Finds the service, or starts one, and returns the options of pools."""
        kept = store.settings
        site = kept['site'] or socket.gethostname()
        endpoint = kept['endpoint'] or os.environ.get('GRADPOOL_ENDPOINT') or service.ENDPOINT
        if kept['slots']:
            self._own = service.Own(self.folder, site, kept['slots'], kept.get('own_endpoint'))
            endpoint = self._own.endpoint
            store.write([], {'own_endpoint': endpoint}, [])
        slots = service.slots_of(endpoint, site)
        if self._settings['workers'][0] > slots:
            raise mismatch(f'study {self.name}: a trial needs {kept["workers"][0]} slots, and site '
                           f'{site} has {slots}; give fewer workers')
        return {'program': service.program(), 'site': site, 'endpoint': endpoint,
                'ahead': 2 * slots,
                'starter': starter_of(self.folder, kept, self._table.say)}

    # ---- trials ----

    @property
    def trials(self):
        return list(self._engine.trials)

    @property
    def best(self):
        return best_of(self._engine.trials, self._settings['mode'])

    def submit(self, parameters):
        """Adds a trial to the queue, and returns the trial. In a resumed study the n-th call
        returns trial n, which has the same parameters."""
        if self._engine.has_searcher:
            raise mismatch(f'submit() to study {self.name}, whose searcher chooses the parameters; '
                           'leave out one of them')
        self._submitted += 1
        if self._submitted > len(self._engine.trials):
            return self._engine.submit(parameters)
        known = self._engine.trials[self._submitted - 1]
        if known.parameters != parameters:
            raise mismatch(f'trial {known.number} of study {self.name} has '
                           f'{text_of(known.parameters)}, and the script now submits '
                           f'{text_of(parameters)}; restore the script, or begin in another folder')
        return known

    # ---- the run ----

    def run(self):
        """Runs all trials to their ends, with a table on a terminal and lines elsewhere."""
        self._table.begin(self)
        for event in self.events():
            self._table.tell(event)
        self._table.end()

    def events(self):
        """Yields the events of the study, until all trials have ended: Report (trial, step, value)
        and Ended (trial). The loop may submit trials, and end them with trial.kill(). A loop that
        is left early ends all processes; --resume continues the study."""
        is_complete, self._has_begun = False, True
        try:
            while not self._engine.is_over():
                yield from self._engine.turn()
                if self._own is not None:
                    self._own.keep(self._table.say)
                self._table.draw()
                self._engine.wait(_TURN_S)
            is_complete = True
        finally:
            self.close(is_complete)

    def close(self, is_complete=False):
        """Ends all processes of the study. A script that ends before run() leaves the trials of an
        earlier process, which train on."""
        if self._is_over:
            return
        has_processes = self._engine is not None and self._engine.has_processes
        with held(self._hurry):
            self._is_over = True
            try:
                if has_processes and not self._has_begun:
                    self._table.say('its trials train on; correct the script, and `gradpool '
                                    f'explore --resume {self.folder}` continues with them')
                elif has_processes and not is_complete:
                    self._end_trials()
            finally:
                if self._own is not None and (self._has_begun or not has_processes):
                    self._end_service()
                if self._engine is not None:
                    self._engine.close()

    def _end_service(self):
        """Ends the service of this study. The next one may have another address, unless a pool
        still asks for this one."""
        self._own.stop()
        if self._engine is not None and not self._engine.has_processes:
            with contextlib.suppress(stores.Failure):
                self._engine.store.write([], {'own_endpoint': None}, [])

    def _hurry(self):
        if self._engine is not None:
            self._engine.signal_all()

    def _end_trials(self):
        with contextlib.suppress(OSError):      # the reader of the output has gone
            self._table.say('ends all trials; `gradpool explore --resume '
                            f'{self.folder}` continues the study')
        self._engine.interrupt()


def _check(name, command, workers, metric, mode, searcher):
    if (not isinstance(name, str) or not name or '/' in name or '"' in name or name[0] in '.-'
            or not name.isprintable() or len(name.encode()) > _NAME_BYTES_MAX):
        raise mismatch(f'Study({name!r}), expected a name of 1 to {_NAME_BYTES_MAX} bytes without '
                       'slashes and quotes; change the name')
    pools.check_command(command)
    if (len(workers) != 2 or not all(isinstance(one, int) for one in workers)
            or not 1 <= workers[0] <= workers[1]):
        raise mismatch(f'Study(workers={workers!r}), expected the fewest and the most workers of a '
                       'trial, such as (1, 4)')
    if not isinstance(metric, str) or mode not in ('min', 'max'):
        raise mismatch(f'Study(metric={metric!r}, mode={mode!r}), expected the name of a value, '
                       "and 'min' or 'max'")
    for method in ('ask', 'tell') if searcher is not None else ():
        if not callable(getattr(searcher, method, None)):
            raise mismatch(f'searcher {type(searcher).__name__} has no method {method}(); add it')


def has_made():
    """Returns whether this process has made a Study."""
    return bool(_made)


def close_all():
    """Ends the processes of the Study of this process."""
    for one in _made:
        one.close()
