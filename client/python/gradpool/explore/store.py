"""study.db: the settings, the trials and the state of the rule of a study, in SQLite. A change is
in the file before its effect on a process. trials.csv and trials.json are copies for people."""
import csv
import dataclasses
import errno
import io
import json
import math
import os
import sqlite3

from ..errors import GradpoolError, mismatch
from .trial import Trial

NAME = 'study.db'
VERSION = 3     # 3: a trial may rest without processes, which version 2 would take for its end
_READ = (2, 3)
_BUSY_S = 10    # longest wait for another process that writes
_JSON = ('parameters', 'curve')
_FIELDS = tuple(field.name for field in dataclasses.fields(Trial))
_TABLES = f'''
CREATE TABLE study (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (number INTEGER PRIMARY KEY, {', '.join(_FIELDS[1:])});
CREATE TABLE orders (number INTEGER NOT NULL);
PRAGMA user_version = {VERSION};
'''
_COLUMNS = ('number', 'state', 'value', 'step', 'workers', 'feedback_s', 'steps_per_s', 'reports',
            'skipped', 'reason')


class Failure(GradpoolError):
    """The database cannot be read or written now."""


class Store:
    """The database of the folder. Only the process of the study writes trials and settings; each
    process may add orders.

      settings  {name: value that JSON can store}"""

    def __init__(self, folder):
        self.path = os.path.join(folder, NAME)
        try:
            self._base = sqlite3.connect(f'file:{_quoted(self.path)}?mode=rw', uri=True,
                                         timeout=_BUSY_S, isolation_level=None)
            version, = self._base.execute('PRAGMA user_version').fetchone()
            self.settings = {} if version not in _READ else {
                name: json.loads(value)
                for name, value in self._base.execute('SELECT name, value FROM study')}
        except sqlite3.Error as error:
            raise _failure(self.path, error) from None
        if version not in _READ:
            raise mismatch(f'{self.path} has version {version}, expected {VERSION}: another '
                           'gradpool has made this study; use that version')

    @classmethod
    def create(cls, folder, settings):
        """Creates the database with its settings, all at once."""
        path = os.path.join(folder, NAME)
        begun = path + '.new'
        if os.path.exists(begun):
            os.unlink(begun)
        try:
            base = sqlite3.connect(begun, isolation_level=None)
            base.executescript(_TABLES)
            with base:
                _write_settings(base, settings)
            base.close()
            os.rename(begun, path)
        except sqlite3.Error as error:
            raise _failure(path, error) from None
        return cls(folder)

    def renew(self):
        """Raises the version of the file: the study continues with this version of gradpool."""
        try:
            self._base.execute(f'PRAGMA main.user_version={VERSION}')
        except sqlite3.Error as error:
            raise _failure(self.path, error) from None

    def trials(self):
        """Returns all trials, by number."""
        rows = self._base.execute(f'SELECT {", ".join(_FIELDS)} FROM trials ORDER BY number')
        return [_trial_of(row) for row in rows]

    def write(self, trials, settings, orders):
        """Stores trials and settings, and removes these orders. All or nothing: raises Failure, for
        example on a full disk."""
        marks = ', '.join('?' * len(_FIELDS))
        try:
            self._base.execute('BEGIN IMMEDIATE')
            try:
                self._base.executemany(f'INSERT OR REPLACE INTO trials VALUES ({marks})',
                                       map(_row_of, trials))
                _write_settings(self._base, settings)
                self._base.executemany('DELETE FROM orders WHERE rowid = ?',
                                       [(one,) for one in orders])
                self._base.execute('COMMIT')
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute('ROLLBACK')
                raise
        except sqlite3.Error as error:
            raise _failure(self.path, error) from None
        self.settings.update(settings)

    def orders(self):
        """Returns {identifier: number of a trial to end}."""
        try:
            return dict(self._base.execute('SELECT rowid, number FROM orders'))
        except sqlite3.Error as error:
            raise _failure(self.path, error) from None

    def order(self, number):
        """Adds an order to end a trial, for the process of the study."""
        try:
            self._base.execute('INSERT INTO orders VALUES (?)', (number,))
        except sqlite3.Error as error:
            raise _failure(self.path, error) from None

    def close(self):
        self._base.close()


def _quoted(path):
    return path.replace('%', '%25').replace('?', '%3f').replace('#', '%23')


def _failure(path, error):
    return Failure(errno.EIO, f'{path}: {error}; free space, check the permissions, or give '
                   'another folder')


def _write_settings(base, settings):
    base.executemany('INSERT OR REPLACE INTO study VALUES (?, ?)',
                     [(name, json.dumps(value)) for name, value in settings.items()])


def _row_of(trial):
    """NaN would be NULL in SQLite, so numbers of reports are stored as texts of JSON."""
    return [json.dumps(getattr(trial, name)) if name in _JSON or name == 'value'
            else getattr(trial, name) for name in _FIELDS]


def _trial_of(row):
    values = dict(zip(_FIELDS, row))
    for name in (*_JSON, 'value'):
        values[name] = json.loads(values[name])
    return Trial(**{**values, 'is_told': bool(values['is_told'])})


# ---- copies for people ----

def document_of(settings, trials, is_running):
    """Returns the study as JSON stores it. NaN becomes null."""
    return {'study': settings['name'], 'metric': settings['metric'], 'mode': settings['mode'],
            'rule': settings['rule'], 'running': is_running,
            'trials': [_view_of(one) for one in trials]}


def _view_of(trial):
    view = {name: _plain(getattr(trial, name)) for name in _COLUMNS}
    return {**view, 'parameters': trial.parameters,
            'curve': [[step, _plain(value)] for step, value in trial.curve]}


def _plain(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_copies(folder, settings, trials, is_running):
    """Replaces trials.csv and trials.json."""
    document = document_of(settings, trials, is_running)
    write_json(folder, 'trials.json', document)
    names = sorted({name for one in trials for name in one.parameters})
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow([*_COLUMNS, *names])
    for one in trials:
        table.writerow([*(getattr(one, name) for name in _COLUMNS),
                        *(one.parameters.get(name) for name in names)])
    _replace(folder, 'trials.csv', text.getvalue())


def write_json(folder, name, value):
    _replace(folder, name, json.dumps(value, indent=1) + '\n')


def _replace(folder, name, text):
    path = os.path.join(folder, name)
    with open(path + '.new', 'w', encoding='utf-8') as file:
        file.write(text)
    os.replace(path + '.new', path)
