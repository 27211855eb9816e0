"""What operators see of a running service."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import tap
from harness import GRADPOOL, WAIT_S, Service, until


class Running(unittest.TestCase):
    """A service with a job that trains for as long as a case needs it."""

    def setUp(self):
        self.service = Service(*self.options(), aggregators=2)
        self.addCleanup(self.service.end)
        self.ranks = self.service.workers('resnet-7', 2, '--rounds', 1000000, '--compute-ms', 2,
                                          '--tensors', 4)
        until(lambda: (self.service.job('resnet-7') or {}).get('use', {}).get('rounds', 0) > 0,
              'the job trains', process=self.ranks[0])

    def options(self):
        return ()

    def top(self, *options):
        answer = self.service.ask('top', *options)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout


class Top(Running):
    def test_top_shows_lanes_shares_and_the_cores_saved(self):
        seen = json.loads(self.top('--json'))
        self.assertEqual(seen['cores']['allocated'], 2)
        self.assertEqual(seen['cores']['dedicated'], 2)
        self.assertGreater(seen['cores']['used'], 0)
        self.assertEqual([lane['lane'] for lane in seen['lanes']], [1, 2])
        for lane in seen['lanes']:
            self.assertGreater(lane['busy'], 0)
            self.assertEqual([(p['job'], p['share']) for p in lane['jobs']], [('resnet-7', 1)])
        job, = seen['jobs']
        self.assertEqual((job['job'], job['workers'], job['cores_allocated']), ('resnet-7', 2, 2))
        self.assertGreater(job['rounds_per_s'], 0)
        self.assertGreater(job['bytes_per_s'], 0)
        self.assertEqual(job['cores_saved'], 0)

    def test_what_goes_to_a_pipe_is_printed_once_without_control_characters(self):
        text = self.top()
        self.assertIn('resnet-7 100 %', text)
        self.assertNotIn('\x1b', text)
        self.assertEqual(text.count('dedicated servers would hold'), 1)

    def test_without_a_service_top_says_so_with_exit_code_3(self):
        answer = subprocess.run([GRADPOOL, 'top', '--once', '--endpoint', 'unix:/nowhere.sock'],
                                capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual((answer.returncode, answer.stdout), (3, ''))
        self.assertIn('/nowhere.sock', answer.stderr)


class Terminal:
    """A program on a terminal of 20 rows and 60 columns, and what it has written."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack('HHHH', 20, 60, 0, 0))
        self.text = ''

    def wait_for(self, condition, what):
        deadline = time.monotonic() + WAIT_S
        while not condition(self.text):
            if time.monotonic() > deadline:
                raise AssertionError(f'never: {what}: {self.text[-2000:]!r}')
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode()
                except OSError:  # it has ended
                    return

    def end(self, number):
        os.kill(self.pid, number)
        code = os.waitpid(self.pid, 0)[1]
        self.wait_for(lambda _: False, 'the end')
        os.close(self.fd)
        return code


class LiveTop(Running):
    def start(self):
        return Terminal(str(GRADPOOL), 'top', '--endpoint',
                        f'unix:{self.service.state}/control.sock')

    def test_top_shows_itself_again_each_second_and_gives_the_terminal_back(self):
        terminal = self.start()
        terminal.wait_for(lambda text: text.count('cores: 2 allocated') >= 3, 'three screens')
        code = terminal.end(signal.SIGINT)
        self.assertTrue(os.WIFSIGNALED(code))
        self.assertTrue(terminal.text.startswith('\x1b[?1049h'))
        self.assertTrue(terminal.text.endswith('\x1b[?1049l'))

    def test_rows_are_cut_to_the_width_of_the_terminal(self):
        terminal = self.start()
        terminal.wait_for(lambda text: text.count('cores: 2 allocated') >= 3, 'three screens')
        terminal.end(signal.SIGTERM)
        last = terminal.text.split('\x1b[H')[-1].split('\x1b[J')[0]
        rows = [row.replace('\x1b[K', '') for row in last.split('\r\n')]
        self.assertLessEqual(max(map(len, rows)), 60)
        self.assertLessEqual(len(rows), 20)

    def test_top_outlives_a_coordinator_and_finds_the_next(self):
        terminal = self.start()
        terminal.wait_for(lambda text: 'resnet-7' in text, 'a screen')
        self.service.serve.kill()
        terminal.wait_for(lambda text: 'gradpool: ' in text, 'the failure is shown')
        said = len(terminal.text)
        self.service.start('serve-again')
        terminal.wait_for(lambda text: 'cores: 2 allocated' in text[said:].split('gradpool: ')[-1],
                          'the service is shown again')
        terminal.end(signal.SIGTERM)


if __name__ == '__main__':
    tap.main()
