"""Tests how `gradpool serve` checks its state folder, and starts with lost or damaged files."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import unittest
import uuid

import harness
import tap
from harness import GRADPOOL, Service

NOBODY = 65534


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-test-'))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.state = self.folder / 'state'

    def refused(self, *options, state=None):
        """Starts `gradpool serve`, which must fail. Returns its log."""
        answer = harness.run([GRADPOOL, 'serve', '--listen', 'gradpool://127.0.0.1:0',
                              '--aggregators', '0', '--state-dir', state or self.state, *options],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(answer.returncode, 1, answer.stdout)
        return answer.stdout


class Trust(Case):
    def test_a_folder_that_other_users_can_write_is_refused_with_its_mode(self):
        self.state.mkdir()
        for mode in 0o777, 0o770, 0o1777:
            self.state.chmod(mode)
            self.assertIn(f'has mode {mode:04o}, so other users can replace its files',
                          self.refused())
        self.assertEqual(list(self.state.iterdir()), [])

    @unittest.skipUnless(os.geteuid() == 0, 'only root can give a folder away')
    def test_a_folder_of_another_user_is_refused(self):
        self.state.mkdir()
        os.chown(self.state, NOBODY, NOBODY)
        self.assertIn(f'belongs to user {NOBODY}, not to user 0', self.refused())

    def test_a_parent_folder_that_any_user_can_write_is_refused(self):
        above = self.folder / 'above'
        above.mkdir()
        above.chmod(0o777)
        self.assertIn(f'{above} has mode 0777', self.refused(state=above / 'state'))

    def test_links_in_the_state_dir_are_not_followed(self):
        precious = self.folder / 'precious'
        precious.write_text('precious')
        for name in 'lock', 'state.db':
            shutil.rmtree(self.state, ignore_errors=True)
            self.state.mkdir(mode=0o700)
            for target in precious, self.folder / 'dangling':
                (self.state / name).unlink(missing_ok=True)
                (self.state / name).symlink_to(target)
                self.assertIn(f'{name} is a symbolic link, which gradpool serve does not follow',
                              self.refused())
        self.assertEqual(precious.read_text(), 'precious')
        self.assertEqual(precious.stat().st_mode & 0o777, 0o666 & ~self.umask())
        self.assertFalse((self.folder / 'dangling').exists())

    @staticmethod
    def umask():
        mask = os.umask(0)
        os.umask(mask)
        return mask


def flip(path, first):
    """Changes 64 random bytes of the file."""
    draw, data = random.Random(1), bytearray(path.read_bytes())
    for _ in range(64):
        data[draw.randrange(first, len(data))] ^= 0xff
    path.write_bytes(data)


def cut(path, size):
    with open(path, 'r+b') as file:
        file.truncate(size)


class Lost(Case):
    """Removes or damages files of a killed service, which had stored tenants in its database and a
    job in its write-ahead log."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(aggregators=1)
        cls.addClassCleanup(cls.service.end)
        key, (aggregator,) = cls.service.tenant_key('acme'), cls.service.pids()
        worker = cls.service.worker('job', 0, 1, '--rounds', 1000000, '--verbose', environment=key)
        worker.wait_for('round ')
        cls.service.serve.kill()
        worker.kill()
        os.kill(aggregator, signal.SIGKILL)
        cls.log_bytes = (cls.service.state / 'state.db-wal').stat().st_size
        assert cls.log_bytes > 0

    def setUp(self):
        super().setUp()
        shutil.copytree(self.service.state, self.state, ignore=shutil.ignore_patterns('*.sock'))
        self.state.chmod(0o700)
        self.database, self.log, self.marker = (self.state / f'state.db{end}'
                                                for end in ('', '-wal', '-used'))

    def start(self):
        """Starts a service with this state. Returns its tenants, and whether it knows the job."""
        service = Service(aggregators=0, folder=self.folder)
        self.addCleanup(service.end)
        tenants = json.loads(service.tenant('list', '--json').stdout)['tenants']
        # the worker of the job no longer runs, so a job that the service knows ends soon
        return [t['tenant'] for t in tenants], service.job('job') is not None or self.has_ended()

    def has_ended(self):
        return 'job acme/job has ended' in (self.folder / 'serve.log').read_text()

    def test_an_intact_state_is_found_again(self):
        self.assertEqual(self.start(), (['acme'], True))
        harness.until(self.has_ended, 'the job has ended')

    def test_a_lost_or_damaged_log_is_reported_and_no_service_starts(self):
        for harm in self.log.unlink, lambda: cut(self.log, self.log_bytes // 2), \
                lambda: cut(self.log, 0), lambda: flip(self.log, 32):
            with self.subTest():
                shutil.copy(self.service.state / 'state.db', self.database)
                shutil.copy(self.service.state / 'state.db-wal', self.log)
                harm()
                said = self.refused()
                self.assertRegex(said, r'state\.db lacks the last \d+ of \d+ changes')
                self.assertIn('changes: its write-ahead log', said)

    def test_the_rest_of_a_lost_log_is_used_after_the_marker_is_removed(self):
        self.log.unlink()
        self.refused()
        self.marker.unlink()
        # the tenants are in the database itself, not in the write-ahead log
        self.assertEqual(self.start(), (['acme'], False))

    def test_a_lost_database_is_logged_and_its_journal_is_kept(self):
        for harm in self.database.unlink, lambda: cut(self.database, 0):
            if self.database.exists():
                harm()
            said = self.refused()
            self.assertRegex(said, r'state\.db is (gone|empty), but was used before')
            self.assertEqual(self.log.stat().st_size, self.log_bytes)
            shutil.copy(self.service.state / 'state.db', self.database)
        self.database.write_bytes(b'')
        self.log.unlink()
        self.assertIn('is empty, but was used before', self.refused())

    def test_a_database_without_the_pieces_of_a_tensor_is_reported_and_no_service_starts(self):
        with contextlib.closing(sqlite3.connect(self.database)) as database, database:
            self.assertGreater(database.execute('DELETE FROM pieces').rowcount, 0)
        self.assertIn(f'{self.database}: rows of pieces are missing. Restore the file from a copy; '
                      f'or move {self.database}* away, to start without jobs and tenants',
                      self.refused())

    def test_with_all_files_moved_away_a_service_starts_with_nothing(self):
        for path in self.state.glob('state.db*'):
            path.rename(self.folder / path.name)
        self.assertEqual(self.start(), ([], False))

    def test_a_damaged_database_is_reported_and_no_service_starts(self):
        self.log.unlink()
        self.marker.unlink()
        for harm in lambda: cut(self.database, 2048), lambda: flip(self.database, 100), \
                lambda: self.database.write_bytes(os.urandom(8192)):
            shutil.copy(self.service.state / 'state.db', self.database)
            harm()
            self.assertIn('away, to start without jobs and tenants', self.refused())

    def test_state_lost_by_a_restart_of_the_host_is_reported(self):
        self.log.unlink()
        text = self.marker.read_text()
        self.marker.write_text(text[:text.index('boot')] + f'boot {uuid.uuid4()}; do not remove\n')
        self.assertEqual(self.start(), (['acme'], False))
        self.assertIn('this host was restarted before they were on disk',
                      (self.folder / 'serve.log').read_text())


if __name__ == '__main__':
    tap.main()
