"""What `gradpool serve` trusts of the folder with its state, and how it begins with one whose files
are lost or damaged."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import harness
import tap
from harness import GRADPOOL

NOBODY = 65534


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-test-'))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.state = self.folder / 'state'

    def refused(self, *options, state=None):
        """What serve says, which does not start."""
        answer = harness.run([GRADPOOL, 'serve', '--listen', 'gradpool://127.0.0.1:0',
                              '--aggregators', '0', '--state-dir', state or self.state, *options],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(answer.returncode, 1, answer.stdout)
        return answer.stdout


class Trust(Case):
    def test_a_folder_that_others_can_write_is_refused_with_its_mode(self):
        self.state.mkdir()
        for mode in 0o777, 0o770, 0o1777:
            self.state.chmod(mode)
            self.assertIn(f'has mode {mode:04o}, so other users can replace what is in it',
                          self.refused())
        self.assertEqual(list(self.state.iterdir()), [])

    @unittest.skipUnless(os.geteuid() == 0, 'only root can give a folder away')
    def test_a_folder_of_another_user_is_refused(self):
        self.state.mkdir()
        os.chown(self.state, NOBODY, NOBODY)
        self.assertIn(f'belongs to user {NOBODY}, not to user 0', self.refused())

    def test_a_folder_above_in_which_anybody_can_replace_it_is_refused(self):
        above = self.folder / 'above'
        above.mkdir()
        above.chmod(0o777)
        self.assertIn(f'{above} has mode 0777', self.refused(state=above / 'state'))

    def test_links_in_it_are_not_followed(self):
        precious = self.folder / 'precious'
        precious.write_text('precious')
        for name in 'lock', 'state.db':
            shutil.rmtree(self.state, ignore_errors=True)
            self.state.mkdir(mode=0o700)
            for target in precious, self.folder / 'dangling':
                (self.state / name).unlink(missing_ok=True)
                (self.state / name).symlink_to(target)
                self.assertIn(f'{name} is a symbolic link, which is not followed', self.refused())
        self.assertEqual(precious.read_text(), 'precious')
        self.assertEqual(precious.stat().st_mode & 0o777, 0o666 & ~self.umask())
        self.assertFalse((self.folder / 'dangling').exists())

    @staticmethod
    def umask():
        mask = os.umask(0)
        os.umask(mask)
        return mask


if __name__ == '__main__':
    tap.main()
