"""Tests gradpool run: the environment of workers, their output, and their ends. One case runs a
real job."""
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import progress
import tap
from harness import BUILD, GRADPOOL, WAIT_S, Service, until

SOURCE = pathlib.Path(__file__).resolve().parents[3]
NAMES = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'GRADPOOL_JOB',
         'GRADPOOL_ENDPOINT', 'OMP_NUM_THREADS', 'GRADPOOL_RANK', 'MASTER_ADDR', 'MASTER_PORT')
TELL = 'import os; print(*(os.environ.get(n, "-") for n in ' + repr(NAMES) + '))'
SUM = """
import numpy, gradpool
with gradpool.connect() as client, client.join() as job:
    tensor = job.declare('w', 100)
    result = numpy.zeros(100, numpy.float32)
    job.push_pull(tensor, numpy.full(100, job.rank + 1, numpy.float32), result, 'sum').wait()
    print(job.name, result[99])
"""

# The script saves for half a second after Ctrl-C; a second Ctrl-C would interrupt it. The script
# sleeps in short steps: if a signal arrives just before a sleep, Python handles it only after the
# sleep.
SAVE = """
import time
try:
    print('ready', flush=True)
    while True:
        time.sleep(0.02)
except KeyboardInterrupt:
    time.sleep(0.5)
    print('saved')
"""
# Each part of the output waits for the file with its number.
PARTS = """
import os, pathlib, sys, time
def say(number, text):
    while not pathlib.Path(sys.argv[1], str(number)).exists():
        time.sleep(0.01)
    os.write(1, text.encode())
"""


def command(*arguments):
    return [str(a) for a in (GRADPOOL, 'run', *arguments)]


def clean(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('GRADPOOL_', 'OMP_'))}
    return {**kept, 'PYTHONPATH': str(SOURCE / 'client/python'),
            'GRADPOOL_LIBRARY': str(BUILD / 'client/libgradpool.so'), **more}


def run(*arguments, **environment):
    return harness.run(command(*arguments), capture_output=True, text=True, check=False,
                       timeout=WAIT_S, env=clean(**environment))


class Run(unittest.TestCase):
    def check(self, done, code=0):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def tell(self, *options, **environment):
        """Returns the variables of each worker, by its rank."""
        done = self.check(run(*options, sys.executable, '-c', TELL, **environment))
        lines = [line.split(' ', 1) for line in done.stdout.splitlines()]
        return {rank: dict(zip(NAMES, told.split())) for rank, told in lines}

    def test_each_worker_gets_variables_for_its_place_only(self):
        told = self.tell('--workers', 3, '--job', 'j', '--endpoint', 'gradpool://here:7077',
                         GRADPOOL_RANK='7')
        self.assertEqual(set(told), {'[0]', '[1]', '[2]'})
        for rank, names in enumerate(told[key] for key in sorted(told)):
            self.assertEqual([names[n] for n in NAMES[:-1]],
                             [str(rank), str(rank), '3', '3', '0', 'j', 'gradpool://here:7077', '1',
                              '-', '127.0.0.1'])
        self.assertEqual(len({names['MASTER_PORT'] for names in told.values()}), 1)

    def test_one_worker_keeps_its_threads_and_has_a_name_of_its_own(self):
        names = self.tell()['[0]']
        self.assertEqual(names['OMP_NUM_THREADS'], '-')
        self.assertRegex(names['GRADPOOL_JOB'], r'^run-[0-9]+-[0-9a-f]{8}$')

    def test_first_processes_of_two_containers_have_jobs_of_their_own(self):
        starts = [*harness.container(), *command(sys.executable, '-c', TELL)]
        told = [harness.run(starts, capture_output=True, text=True, env=clean()) for _ in range(2)]
        names = {self.check(done).stdout.split()[1 + NAMES.index('GRADPOOL_JOB')] for done in told}
        self.assertEqual(len(names), 2, names)
        self.assertTrue(all(name.startswith('run-1-') for name in names), names)

    def test_ranks_go_on_over_nodes(self):
        told = self.tell('--nodes', 2, '--node', 1, '--workers', 2, '--job', 'j', '--master',
                         'node0:29500')
        self.assertEqual(sorted(told), ['[2]', '[3]'])
        self.assertEqual([told['[3]'][n] for n in NAMES[:5]], ['3', '1', '4', '2', '1'])
        self.assertEqual(told['[2]']['MASTER_ADDR'] + told['[2]']['MASTER_PORT'], 'node029500')

    def test_options_after_the_program_are_passed_to_the_program(self):
        done = self.check(run('--plain', 'echo', '--workers', '-n', '--help'))
        self.assertEqual(done.stdout, '--workers -n --help\n')

    def test_the_first_failed_worker_ends_the_others_and_gives_the_exit_code(self):
        done = self.check(run('--workers', 3, 'sh', '-c', 'if [ $RANK = 1 ]; then exit 7; fi; '
                              'exec sleep 1000'), 7)
        self.assertIn('rank 1 ended with exit code 7; the others are ended', done.stderr)
        done = self.check(run('--workers', 2, 'sh', '-c', 'if [ $RANK = 0 ]; then kill -9 $$; fi; '
                              'exec sleep 1000'), 137)
        self.assertIn('rank 0 was ended by signal 9 (Killed)', done.stderr)

    def test_a_process_that_does_not_end_is_killed(self):
        done = self.check(run('--workers', 2, sys.executable, '-c',
                              'import os, signal, time; r = os.environ["RANK"]\n'
                              'signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
                              'time.sleep(1) if r == "0" else time.sleep(1000)\n'
                              'raise SystemExit(3)'), 3)
        self.assertIn('rank 0 ended with exit code 3', done.stderr)

    def test_all_workers_end_with_the_command_however_the_command_ends(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as folder:
                process = subprocess.Popen(
                    command('--workers', 2, 'sh', '-c',
                            f'echo $$ > {folder}/$RANK.new; mv {folder}/$RANK.new {folder}/$RANK; '
                            'exec sleep 1000'), env=clean())
                files = [pathlib.Path(folder) / str(rank) for rank in range(2)]
                until(lambda: all(file.exists() for file in files), 'both run')
                pids = [int(file.read_text()) for file in files]
                process.send_signal(number)
                self.assertEqual(harness.end_of(process),
                                 -number if number == signal.SIGKILL else 143)
                until(lambda: not any(map(harness.is_alive, pids)), 'both are gone')

    def test_mistakes_on_the_command_line_are_named(self):
        for options, text in (
                ((), 'missing: PROGRAM'), (('--workers', 0, 'true'), "'0'"),
                (('--nodes', 2, 'true'), '--master and --job are needed'),
                (('--node', 1, 'true'), 'below --nodes'),
                (('--master', 'node0', 'true'), 'expected HOST:PORT'),
                (('--endpoint', 'http://here', 'true'), 'http://here'),
                (('--workers', 700, '--nodes', 2, 'true'), 'at most 768')):
            with self.subTest(options):
                self.assertIn(text, self.check(run(*options), 2).stderr)
        self.assertIn('No such file', self.check(run('/no/such/program'), 127).stderr)

    def test_workers_of_a_real_job_have_the_right_sum(self):
        service = Service()
        self.addCleanup(service.end)
        done = self.check(run('--workers', 3, '--job', 'sums', '--endpoint', service.endpoint,
                              sys.executable, '-c', SUM))
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f'[{rank}] sums 6.0' for rank in range(3)])


class Output(unittest.TestCase):
    ATTEMPTS = 3    # the command cuts a line if its worker pauses for half a second

    def test_a_line_is_whole_and_none_is_lost(self):
        expected = [[f'ab {i}' for i in range(1, 201)] + ['end']] * 3
        for _ in range(self.ATTEMPTS):
            done = self.done(run('--workers', 3, 'sh', '-c',
                                 'for i in $(seq 200); do printf a; printf "b %d\\n" $i; done; '
                                 'printf end; echo wrong >&2'))
            lines = [[line[4:] for line in done.stdout.splitlines() if line[:3] == f'[{rank}]']
                     for rank in range(3)]
            self.assertEqual([''.join(one) for one in lines], [''.join(one) for one in expected])
            self.assertEqual(sorted(done.stderr.splitlines()), [f'[{r}] wrong' for r in range(3)])
            if lines == expected:
                return
        self.assertEqual(lines, expected)

    def done(self, answer):
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer

    def test_long_lines_of_several_workers_do_not_mix(self):
        expected = sorted(f'[{rank}] ' + json.dumps([str(rank), i, 'é' * 30000], ensure_ascii=False)
                          for rank in range(3) for i in range(20))
        for _ in range(self.ATTEMPTS):
            done = self.done(run('--workers', 3, sys.executable, '-c', """
import json, os
for i in range(20):
    os.write(1, (json.dumps([os.environ['RANK'], i, 'é' * 30000], ensure_ascii=False) + '\\n')
             .encode())"""))
            lines = done.stdout.splitlines()
            if sorted(lines) == expected:
                return
        self.assertEqual(sorted(lines), expected)

    def test_a_line_that_is_too_long_is_cut_between_characters(self):
        """Two workers print long texts, whose parts could be mixed."""
        text = 'aé' * 1000000
        done = self.done(run('--workers', 2, sys.executable, '-c', "print('aé' * 1000000)"))
        parts = {'[0] ': '', '[1] ': ''}
        for line in done.stdout.splitlines():
            parts[line[:4]] += line[4:]
        self.assertTrue(all(said == text for said in parts.values()))

    def parts(self, script, said):
        """Runs two workers. Permits one part of their output at a time, and waits until the part
        is printed."""
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(
                command('--workers', 2, sys.executable, '-c', PARTS + script, folder),
                stdout=subprocess.PIPE, env=clean())
            text, patience = b'', progress.Patience(WAIT_S)
            for number, expected in enumerate(said):
                pathlib.Path(folder, str(number)).touch()
                while not text.endswith(expected):
                    text += harness.read_more(process.stdout.fileno(), patience, text)
            self.assertEqual(process.stdout.read(), b'')
            process.stdout.close()
            self.assertEqual(harness.end_of(process), 0)
        return text

    def test_progress_is_shown_before_its_line_ends(self):
        text = self.parts("""if os.environ['RANK'] == '1':
    say(0, '\\r10%')
    say(1, '\\r20%\\r')
    say(2, '\\n')
""", (b'10%', b'20%\r', b'\n'))
        self.assertEqual(text, b'[1] \r[1] 10%\r[1] 20%\r\n')

    def test_output_of_another_worker_begins_on_a_new_line(self):
        text = self.parts("""if os.environ['RANK'] == '0':
    say(0, 'sure? ')
    say(2, 'yes')
else:
    say(1, 'hello\\n')
""", (b'sure? ', b'hello\n', b'yes\n'))
        self.assertEqual(text, b'[0] sure? \n[1] hello\n[0] yes\n')

    def test_output_bytes_are_unchanged(self):
        done = harness.run(command('--plain', 'printf', r'\377\r\n\0no end'),
                           capture_output=True, check=True, timeout=WAIT_S, env=clean())
        self.assertEqual(done.stdout, b'\xff\r\n\0no end')


class Interrupts(unittest.TestCase):
    """Interrupts workers. Each worker receives the signal once and has time to react."""

    def setUp(self):
        # a shell with `&` starts this process with SIGINT ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def until_said(self, fd, *texts):
        """Reads the output until each text has occurred the given number of times. Returns the
        output."""
        said, patience = '', progress.Patience(WAIT_S)
        while not all(said.count(text) >= times for text, times in texts):
            said += harness.read_more(fd, patience, said).decode()
        return said

    def test_ctrl_c_at_a_terminal_gives_workers_time_to_save(self):
        pid, terminal = pty.fork()
        if pid == 0:
            arguments = command('--workers', 2, sys.executable, '-c', SAVE)
            os.execve(arguments[0], arguments, clean())
        self.addCleanup(os.close, terminal)
        self.until_said(terminal, ('] ready', 2))
        os.write(terminal, b'\x03')
        # on a busy host the line of the command may come after the lines of the workers
        said = self.until_said(terminal, ('] saved', 2), ('; a second signal hurries them', 1))
        self.assertIn('gradpool run: Interrupt: workers have 10 s to end', said)
        self.assertIn(': workers have 10 s to end; a second signal hurries them', said)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 130)

    def start(self, script):
        process = subprocess.Popen(command('--workers', 2, sys.executable, '-c', script),
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean())
        self.addCleanup(process.stdout.close)
        self.until_said(process.stdout.fileno(), ('] ready', 2))
        return process

    def test_a_signal_to_the_command_alone_is_passed_on(self):
        process = self.start(SAVE)
        process.send_signal(signal.SIGINT)
        self.until_said(process.stdout.fileno(), ('] saved', 2))
        self.assertEqual(harness.end_of(process), 130)

    def test_a_second_signal_ends_the_workers_early(self):
        process = self.start('import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)' + SAVE)
        process.send_signal(signal.SIGINT)
        self.until_said(process.stdout.fileno(), ('workers have 10 s', 1))
        time.sleep(0.3)  # an earlier signal would be merged with the first one
        watch = progress.Stopwatch()
        process.send_signal(signal.SIGINT)
        self.assertEqual(harness.end_of(process), 130)
        self.assertLess(watch.seconds(), 8)


if __name__ == '__main__':
    tap.main()
