"""Tests that every cell of the bench is complete and its results are right. Measured figures are
never tested."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import harness
import tap
from harness import BENCH, until

FIELDS = ['system', 'transport', 'workers', 'tensor_bytes', 'tensors', 'rounds', 'wrong',
          'cpu_s_per_gib', 'server_cpu_s_per_gib', 'round_us_p50', 'round_us_p99', 'gib_per_s']
OURS = [('gradpool', 'shm'), ('gradpool', 'shm-copy'), ('gradpool', 'tcp'), ('sockets', 'tcp')]
PEERS = [('gloo', 'tcp'), ('openmpi', 'shm'), ('openmpi', 'tcp')]


CLOCK_TICK_S = 0.01
FASTEST_S_PER_GIB = 0.005   # no core moves 200 GiB/s


class Spent:
    """Measures wall time and CPU time of all commands since the object was made. No figure of the
    bench can be larger than these times."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.monotonic(), used.ru_utime + used.ru_stime

    def wall_s(self):
        return self.now()[0] - self.start[0]

    def cpu_s(self):
        return self.now()[1] - self.start[1]


def bench(*options, environment=None):
    return harness.run([str(BENCH), *map(str, options)], capture_output=True, text=True,
                       timeout=300, check=False, env={**os.environ, **(environment or {})})


def compare(case, *options):
    """Runs the bench and checks that each cell has all fields. Returns the cells."""
    spent = Spent()
    answer = bench('compare', '--json', '--cell-ms', 40, *options)
    case.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
    cells = [json.loads(line) for line in answer.stdout.splitlines()]
    for cell in cells:
        case.assertEqual(list(cell), FIELDS)
        case.assertEqual(cell['wrong'], 0, cell)
        case.assertGreaterEqual(cell['rounds'], 2)
        case.assertGreater(cell['cpu_s_per_gib'], FASTEST_S_PER_GIB)
        case.assertLessEqual(cell['server_cpu_s_per_gib'], cell['cpu_s_per_gib'])
        case.assertLessEqual(cell['round_us_p50'], cell['round_us_p99'])
        # Half of the rounds take at least the median time, so they are a lower bound of the wall
        # time.
        case.assertGreater(wall_s(cell), cell['rounds'] / 2 * cell['round_us_p50'] / 1.1e6, cell)
    case.assertLess(sum(map(wall_s, cells)), spent.wall_s())
    case.assertLess(sum(cell['cpu_s_per_gib'] * gib(cell) for cell in cells),
                    spent.cpu_s() + CLOCK_TICK_S * len(cells), cells)
    return cells


def check_ratio(case, told, figure, base, row):
    """Compares a printed ratio with the ratio of two printed figures. The printed numbers are
    rounded, and on a busy host one figure can be far larger than the other."""
    case.assertAlmostEqual(told / (figure / base), 1, delta=0.05, msg=row)


def gib(cell):
    """Returns the size of all tensors of all workers in all rounds, in GiB."""
    bytes_ = cell['workers'] * cell['tensor_bytes'] * cell['tensors'] * cell['rounds']
    return bytes_ / 2**30


def wall_s(cell):
    return gib(cell) / cell['gib_per_s']


def names(cells):
    return [(cell['system'], cell['transport']) for cell in cells]


class Compare(unittest.TestCase):
    def test_systems_are_compared_side_by_side_and_none_is_wrong(self):
        cells = compare(self, '--workers', 4, '--bytes', 300004)
        self.assertEqual(names(cells), OURS + PEERS)
        for cell in cells:
            self.assertEqual((cell['workers'], cell['tensor_bytes']), (4, 300004))
            if cell['system'] in ('gradpool', 'sockets'):
                self.assertGreater(cell['server_cpu_s_per_gib'], FASTEST_S_PER_GIB)

    def test_nothing_is_wrong_with_one_worker_ten_times_slower(self):
        cells = compare(self, '--workers', 4, '--bytes', 65536, '--slow-rank', 2)
        self.assertEqual(names(cells), OURS + PEERS)

    def test_the_comparison_has_one_worker_alone_and_the_smallest_tensor(self):
        for bytes_ in (4, 4096):
            cells = compare(self, '--workers', 1, '--bytes', bytes_, '--systems',
                            'gradpool,sockets')
            self.assertEqual(names(cells), OURS)

    def test_many_small_tensors_as_one_group_are_compared_where_groups_are_known(self):
        cells = compare(self, '--workers', 2, '--bytes', 400, '--tensors', 1000)
        self.assertEqual(names(cells), OURS)
        for cell in cells:
            self.assertEqual((cell['tensor_bytes'], cell['tensors']), (400, 1000))

    def test_a_peer_that_is_not_installed_is_skipped_with_a_line(self):
        answer = bench('compare', '--json', '--cell-ms', 10, '--workers', 2, '--bytes', 4096,
                       '--systems', 'openmpi,sockets', environment={'PATH': '/nonexistent'})
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn('openmpi shm is skipped: mpirun.openmpi is not installed', answer.stderr)
        self.assertEqual(names(map(json.loads, answer.stdout.splitlines())), [OURS[-1]])

    def test_without_json_people_get_a_table(self):
        answer = bench('compare', '--cell-ms', 10, '--workers', 2, '--bytes', 65536, '--systems',
                       'gradpool,sockets')
        self.assertEqual(answer.returncode, 0, answer.stderr)
        rows = answer.stdout.strip().splitlines()
        self.assertIn('CPU s/GiB', rows[0])
        self.assertEqual(len(rows), 1 + len(OURS))
        self.assertIn(' 1.00 ', rows[-1])

    def test_a_mistake_on_the_command_line_is_exit_code_2(self):
        for options in (('compare', '--workers', '3'), ('compare', '--bytes', 'x'), ('compar',),
                        ()):
            answer = bench(*options)
            self.assertEqual(answer.returncode, 2, options)
            self.assertIn('gradpool-bench', answer.stderr)


class Explore(unittest.TestCase):
    POLICIES = ['fifo-1', 'fifo-2', 'fifo-4', 'noreuse', 'eps', 'rest', 'preload',
                'restart-1.7/3.5', 'restart-1.7/7', 'restart-5/3.5', 'restart-5/7']

    def test_a_quick_simulation_has_a_row_for_each_policy_and_its_bars(self):
        answer = bench('explore', '--simulate', '--quick', '--json')
        self.assertEqual((answer.returncode, answer.stderr), (0, ''))
        lines = [json.loads(line) for line in answer.stdout.splitlines()]
        rows = [line for line in lines if 'policy' in line]
        bars = [line for line in lines if 'bar' in line]
        self.assertEqual([row['policy'] for row in rows if row['stream'] == 'bench size'],
                         self.POLICIES)
        self.assertTrue(all(0 < row['feedback_p50_s'] <= row['feedback_p95_s']
                            <= row['makespan_s'] for row in rows))
        self.assertTrue(all(row['waits_over_bound'] + row['rests_over_bound'] == 0
                            for row in rows if row['policy'] in ('rest', 'preload')))
        self.assertTrue(all(bar['holds'] is (bar['value'] >= bar['limit'] if bar['at'] == 'least'
                                             else bar['value'] <= bar['limit']) for bar in bars))

    def test_the_same_simulation_gives_the_same_figures(self):
        first, second = (bench('explore', '--simulate', '--quick', '--stages', '--json').stdout
                         for _ in range(2))
        self.assertIn('"policy": "greedy"', first)
        self.assertEqual(first, second)

    def test_a_file_that_cannot_be_read_is_named(self):
        for option in '--streams', '--trace':
            answer = bench('explore', '--simulate', '--quick', option, '/nowhere/file')
            self.assertEqual(answer.returncode, 1)
            self.assertIn('/nowhere/file', answer.stderr)

    def test_a_call_without_a_mode_is_a_usage_error(self):
        self.assertEqual(bench('explore').returncode, 2)


class Ddp(unittest.TestCase):
    def test_training_with_either_system_has_a_row_and_the_last_line_their_ratios(self):
        answer = bench('ddp', '--json', '--model', 'cnn', '--turns', 1, '--turn-ms', 50)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        *rows, ratios = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertEqual([(row['system'], row['model'], row['workers'], row['wrong'])
                          for row in rows], [('gloo', 'cnn', 2, 0), ('gradpool', 'cnn', 2, 0)])
        gloo, ours = rows
        for figure, ratio in (('steps_per_s', 'cnn_steps_ratio'),
                              ('cpu_s_per_step', 'cnn_cpu_ratio')):
            check_ratio(self, ratios[ratio], ours[figure], gloo[figure], rows)


class Names(unittest.TestCase):
    def test_many_named_tensors_have_right_sums_and_a_ratio_to_one_fused_tensor(self):
        spent = Spent()
        answer = bench('names', '--json', '--tensors', 50, '--turns', 1, '--rounds', 2)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        *rows, ratios = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertEqual([(row['way'], row['tensors'], row['wrong']) for row in rows],
                         [('fused', 1, 0), ('one-by-one', 50, 0), ('grouped', 50, 0),
                          ('python', 50, 0)])
        for row in rows:
            self.assertEqual((row['workers'], row['bytes']), (4, 50 * 16384))
            moved_gib = row['workers'] * row['bytes'] / 2**30
            self.assertGreater(row['cpu_ms_per_round'], 1e3 * FASTEST_S_PER_GIB * moved_gib, row)
        self.assertLess(sum(row['rounds'] * row['cpu_ms_per_round'] for row in rows) / 1e3,
                        spent.cpu_s())
        self.assertLess(sum(row['rounds'] * row['round_ms'] for row in rows) / 1e3,
                        spent.wall_s())
        self.assertEqual(list(ratios), ['one_by_one_ratio', 'grouped_ratio', 'python_ratio'])
        # with one turn the median is the only value
        for row, ratio in zip(rows[1:], ratios.values()):
            check_ratio(self, ratio, row['round_ms'], rows[0]['round_ms'], row)


class Parameters(unittest.TestCase):
    def test_many_small_parameters_are_right_at_each_door_and_have_their_ratio_to_training_alone(
            self):
        spent = Spent()
        answer = bench('parameters', '--json', '--count', 100, '--turns', 1, '--steps', 2)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        rows = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertEqual([(row['door'], row['parameters'], row['wrong']) for row in rows],
                         [(door, 100, 0) for door in ('alone', 'gloo', 'attach', 'horovod')])
        alone = rows[0]
        for row in rows:
            self.assertEqual(row['workers'], 2)
            for ratio, figure in ('ratio', 'step_ms'), ('cpu_ratio', 'cpu_ms_per_step'):
                check_ratio(self, row[ratio], row[figure], alone[figure], row)
        self.assertLess(sum(row['steps'] * row['cpu_ms_per_step'] for row in rows) / 1e3,
                        spent.cpu_s())
        self.assertLess(sum(row['steps'] * row['step_ms'] for row in rows) / 1e3, spent.wall_s())


class Idle(unittest.TestCase):
    def test_the_cpu_of_connected_idle_jobs_is_printed_in_fractions_of_a_core(self):
        spent = Spent()
        answer = bench('idle', '--jobs', 6, '--workers', 2, '--seconds', 1, '--json')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        told = json.loads(answer.stdout.splitlines()[-1])
        self.assertEqual((told['jobs'], told['workers']), (6, 12))
        fractions = [told[f'{who}_cpu_fraction'] for who in ('lane', 'coordinator', 'client')]
        # a process that waits in a loop would use a whole core
        self.assertLess(max(fractions), 0.5)
        self.assertLess(sum(fractions) * told['seconds'], spent.cpu_s())

    def test_tasks_that_are_held_are_counted_in_bytes_and_newcomers_in_milliseconds(self):
        answer = bench('tasks', '--jobs', 5, '--tasks', 40, '--newcomers', 6,
                       '--newcomer-tasks', 20, '--seconds', 1, '--json')
        self.assertEqual(0, answer.returncode, answer.stderr)
        figures = json.loads(answer.stdout.splitlines()[-1])
        self.assertEqual((200, 5, 20), tuple(figures[name] for name in
                                             ('tasks', 'jobs', 'newcomer_tasks')))
        self.assertTrue(0 < figures['place_ms_p50'] <= figures['place_ms_p99'] < 60_000, figures)
        self.assertTrue(0 < figures['placing_cpu_us_per_task'] < 100_000, figures)
        self.assertTrue(0 <= figures['resting_cpu_fraction'] < 1, figures)

    def test_an_active_job_among_idle_ones_is_compared_with_itself_alone(self):
        spent = Spent()
        answer = bench('idle', '--jobs', 4, '--workers', 1, '--seconds', 1, '--active', '--json')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        cells = [json.loads(line) for line in answer.stdout.splitlines()[-3:-1]]
        self.assertEqual([c['active'] for c in cells], ['shm', 'tcp'])
        for cell in cells:
            # a round takes some time, and at most the time of all commands
            self.assertTrue(1 < cell['alone_us_p50'] < 1e6 * spent.wall_s(), cell)
            check_ratio(self, cell['ratio'], cell['among_us_p50'], cell['alone_us_p50'], cell)


class Ended(unittest.TestCase):
    def test_a_killed_bench_leaves_neither_folder_nor_process_behind(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
                    [str(BENCH), 'idle', '--seconds', '60'], stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, env={**os.environ, 'TMPDIR': folder}) as process:
                until(lambda: list(pathlib.Path(folder).glob('*/state/control.sock')),
                      'its service is there')
                process.send_signal(number)
                self.assertEqual(harness.end_of(process), -number)
                until(lambda: not os.listdir(folder), 'all is removed')
                until(lambda: not harness.running(folder), 'its service has ended')


class Durability(unittest.TestCase):
    def test_copies_are_compared_with_none_and_every_result_is_right(self):
        spent = Spent()
        answer = bench('durability', '--json', '--state', 65536, '--turns', 2, '--rounds', 5)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        rows = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertEqual([(r['transport'], r['durability']) for r in rows],
                         [(transport, kind) for transport in ('shm', 'tcp')
                          for kind in ('none', 'replica', 'worker')])
        for row in rows:
            self.assertEqual((row['state_bytes'], row['turns'], row['wrong']), (65536, 2, 0))
            # two workers send at least 65536 bytes of state, which a lane reads
            self.assertGreater(row['lane_cpu_ms'], 1e3 * FASTEST_S_PER_GIB * 65536 / 2**30, row)
        rounds = rows[0]['turns'] * rows[0]['rounds']
        self.assertLess(rounds * sum(row['wall_ms'] for row in rows) / 1e3, spent.wall_s())
        self.assertLess(rounds * sum(row['lane_cpu_ms'] for row in rows) / 1e3, spent.cpu_s())


class Resize(unittest.TestCase):
    def test_pauses_of_growth_and_shrink_are_printed_and_every_result_is_right(self):
        answer = bench('resize', '--json', '--cycles', 1, '--state-bytes', 4000,
                       '--gradient-bytes', 4000, '--compute-ms', 2, '--setup-ms', 50)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        rows = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertEqual([(r['transport'], r['cycles'], r['wrong']) for r in rows],
                         [('shm', 1, 0), ('tcp', 1, 0)])
        for row in rows:
            self.assertGreaterEqual(row['step_ms'], 2)
            self.assertEqual(row['grow_pause_ms_p50'], row['grow_pause_ms_p90'])


class Tables(unittest.TestCase):
    NAMES = ['apply_of_floor', 'apply_row_ns', 'exchange_cpu_s_shm', 'exchange_clock_ms_shm',
             'exchange_cpu_s_tcp', 'exchange_clock_ms_tcp', 'small_clock_ms_shm',
             'small_clock_ms_tcp', 'one_shard_clock_ms_tcp', 'row_bytes_beyond', 'pull_p50_ms',
             'pull_p99_of_p50', 'pull_p50_ms_tcp', 'ssp_of_bsp', 'copied_clock_of_plain',
             'copied_cpu_of_plain', 'first_pull_ms']
    FIELDS = ['bench', 'name', 'value', 'unit', 'bar', 'holds', 'wrong']

    def lines(self, answer):
        lines = [json.loads(line) for line in answer.stdout.splitlines()]
        for line in lines:
            self.assertEqual(list(line), self.FIELDS)
            self.assertEqual(line['bench'], 'tables')
            self.assertGreater(line['value'], 0, line)
            self.assertEqual(line['bar'] is None, line['holds'] is None, line)
        return lines

    def test_every_figure_is_printed_and_all_rows_are_right(self):
        spent = Spent()
        answer = bench('tables', '--quick', '--json')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        lines = self.lines(answer)
        self.assertEqual([line['name'] for line in lines], self.NAMES)
        for line in lines:
            self.assertEqual(line['wrong'], 0, line)
        values = {line['name']: line['value'] for line in lines}
        self.assertLess(values['exchange_cpu_s_shm'] * 2 * 2000 * 5 / 1e6, spent.cpu_s())
        self.assertLess(5 / 2 * values['exchange_clock_ms_tcp'] / 1e3, spent.wall_s())
        # Beyond its values, a row has a key of 8 bytes and an index entry. At most half of the
        # slots of the index are free.
        self.assertGreater(values['row_bytes_beyond'], 16)
        holds = {line['name']: line['holds'] for line in lines}
        self.assertEqual(holds['row_bytes_beyond'], values['row_bytes_beyond'] <= 32)
        self.assertEqual(holds['apply_of_floor'], values['apply_of_floor'] >= 0.7)

    def test_wrong_rows_are_counted_and_fail_the_command(self):
        false_results = harness.BUILD / 'test' / 'e2e' / 'libfalse_results.so'
        for part in 'apply', 'exchange', 'latency', 'ahead':
            with self.subTest(part):
                answer = bench('tables', '--quick', '--json', '--part', part,
                               environment={'LD_PRELOAD': str(false_results)})
                self.assertEqual(answer.returncode, 1, answer.stdout + answer.stderr)
                self.assertTrue(any(line['wrong'] for line in self.lines(answer)))

    def test_an_unknown_part_is_refused(self):
        answer = bench('tables', '--part', 'all')
        self.assertEqual(answer.returncode, 2)
        self.assertIn("--part: apply, exchange, memory, latency, ahead or copies, not 'all'",
                      answer.stderr)


class Stages(unittest.TestCase):
    NAMES = ['border_p50_ms', 'idle_cpu_ms_a_minute', 'border_p50_ms_tcp',
             'hand_over_of_broadcast', 'hand_over_of_file', 'svrg_time_of_best',
             'svrg_slots_of_best', 'svrg_best_workers', 'batch_time_of_best',
             'batch_slots_of_best', 'batch_best_workers',
             'automatic_of_best']

    def lines(self, answer):
        lines = [json.loads(line) for line in answer.stdout.splitlines()]
        for line in lines:
            self.assertEqual(list(line), Tables.FIELDS)
            self.assertEqual(line['bench'], 'stages')
            self.assertGreater(line['value'], 0, line)
            if line['bar'] is not None:
                self.assertEqual(line['holds'], line['value'] <= line['bar'], line)
        return lines

    def test_every_figure_is_printed_and_all_weights_are_right(self):
        spent = Spent()
        answer = bench('stages', '--quick', '--json')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        lines = self.lines(answer)
        self.assertEqual([line['name'] for line in lines], self.NAMES)
        for line in lines:
            self.assertEqual(line['wrong'], 0, line)
        values = {line['name']: line['value'] for line in lines}
        self.assertLess(20 / 2 * values['border_p50_ms'] / 1e3, spent.wall_s())
        self.assertLess(20 / 2 * values['border_p50_ms_tcp'] / 1e3, spent.wall_s())
        for name in 'svrg_best_workers', 'batch_best_workers':
            self.assertIn(values[name], (1, 2, 4, 8))
        # the idle stage of a quick run has 2 s, a thirtieth of a minute
        self.assertLess(values['idle_cpu_ms_a_minute'] / 30 / 1e3, spent.cpu_s())

    def test_wrong_weights_are_counted_and_fail_the_command(self):
        false_results = harness.BUILD / 'test' / 'e2e' / 'libfalse_results.so'
        for part in 'svrg', 'batch', 'automatic':
            with self.subTest(part):
                answer = bench('stages', '--quick', '--json', '--part', part,
                               environment={'LD_PRELOAD': str(false_results)})
                self.assertEqual(answer.returncode, 1, answer.stdout + answer.stderr)
                self.assertTrue(any(line['wrong'] for line in self.lines(answer)))

    def test_another_part_is_refused(self):
        answer = bench('stages', '--part', 'all')
        self.assertEqual(answer.returncode, 2)
        self.assertIn("--part: border, hand-over, svrg, batch or automatic, not 'all'",
                      answer.stderr)


class Budget(unittest.TestCase):
    def test_a_gib_over_shared_memory_grows_no_memory_and_every_count_is_printed(self):
        answer = bench('budget', '--json', '--rounds', 100, '--bytes', 1 << 20)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        cells = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertEqual([c['transport'] for c in cells], ['shm', 'shm-copy', 'tcp'])
        rounds_per_gib = 1 << 30 >> 20 >> 2
        for cell in cells:
            # Each of four workers sleeps a limited number of times in a round. To wake a worker,
            # the lane makes one system call.
            self.assertTrue(0 < cell['worker_wakes_per_gib'] < 20 * 4 * rounds_per_gib, cell)
            self.assertGreater(cell['worker_calls_per_gib'], cell['worker_wakes_per_gib'] / 2, cell)
        shm, _, tcp = (cell['lane_calls_per_gib'] for cell in cells)
        self.assertTrue(0 < shm < tcp, cells)
        # Each MiB read from a socket takes at least one system call, and each MiB written to a
        # socket does, too.
        self.assertGreater(tcp, 2 * rounds_per_gib, cells)
        # A lane that finds the next announcement in its memory does not sleep. In a short cell this
        # can hold in every round, so only the sum over all cells is tested.
        self.assertGreater(sum(cell['lane_wakes_per_gib'] for cell in cells), 0, cells)
        self.check_memory(cells, rounds_per_gib / 2)

    def check_memory(self, cells, most):
        """Checks that rounds cause few calls for memory. Control threads sometimes allocate memory,
        more often if rounds take longer, and the allocator may return pages to the kernel.
        Therefore the bench may run again. A mistake in the data path would cause such calls in
        every round of each run."""
        def is_small(cells):
            shm = max(cells[0][f'{name}_memory_calls_per_gib'] for name in ('lane', 'worker'))
            every = max(cell[f'{name}_allocations_per_gib'] for cell in cells
                        for name in ('lane', 'worker'))
            return shm < most and every < most
        for _ in range(3):
            if is_small(cells):
                return
            answer = bench('budget', '--json', '--rounds', 400, '--bytes', 1 << 20)
            cells = [json.loads(line) for line in answer.stdout.splitlines()]
        self.assertTrue(is_small(cells), cells)


BACKUP_FIELDS = ['rule', 'times', 'problem', 'straggler', 'seed', 'target', 'seconds', 'rounds',
                 'k_mean', 'dropped', 'absence', 'best_static', 'ratio', 'decide_ns']


LIVE_FIELDS = ['transport', 'times', 'problem', 'rule', 'seed', 'target', 'unit_ms', 'seconds',
               'rounds', 'k_mean', 'dropped', 'absence', 'best_static', 'ratio', 'decide_ns',
               'compared', 'bits_equal']


class Backup(unittest.TestCase):
    def test_every_rule_has_its_rows_and_waiting_for_a_slow_rank_is_the_slowest(self):
        answer = bench('backup', '--virtual', '--quick', '--json')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        *rows, bars = map(json.loads, answer.stdout.splitlines())
        rules = {row['rule'] for row in rows}
        self.assertEqual(len(rows), len(rules) * 2 * 2 * 4)
        for row in rows:
            self.assertEqual(list(row), BACKUP_FIELDS)
            self.assertLessEqual(row['k_mean'], 16 if 'second' not in row['rule'] else 96)
            self.assertEqual(row['dropped'] == 0, row['absence'] == 0, row)
        at = {(row['rule'], row['times'], row['problem'], row['target']): row for row in rows}
        for times in ('one x5',):
            for target in (0.5, 0.25):
                every = at['all', times, 'quad quiet', target]
                self.assertEqual(every['dropped'], 0)
                own = at['auto', times, 'quad quiet', target]
                self.assertGreater(every['seconds'], own['seconds'] * (2 if times != 'calm' else 0))
        self.assertLess(bars['over_all'], 1)

    def test_runs_with_a_known_outcome_end_with_this_outcome(self):
        answer = bench('backup', '--virtual', '--check')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        lines = answer.stdout.splitlines()
        self.assertGreater(len(lines), 5)
        for line in lines:
            self.assertTrue(line.endswith(': equal'), line)

    def test_a_part_that_the_grid_lacks_is_named(self):
        for options, name in ((['--problem', 'cubic'], 'cubic'), (['--times', 'stormy'], 'stormy'),
                              (['--rules', 'auto,dbw + second'], 'dbw + second'),
                              (['--grid', 'absent.json'], 'absent.json'),
                              (['--digits', 'absent.csv'], 'absent.csv'),
                              (['--jitter', 'absent.csv'], 'absent.csv')):
            answer = bench('backup', '--virtual', *options)
            self.assertEqual(answer.returncode, 1, answer.stdout)
            self.assertIn(name, answer.stderr)

    def test_live_workers_have_equal_parameters_under_each_rule(self):
        answer = bench('backup', '--quick', '--json')
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        *rows, bars = map(json.loads, answer.stdout.splitlines())
        self.assertEqual([(row['transport'], row['rule']) for row in rows],
                         [(transport, rule) for transport in ('tcp', 'shm')
                          for rule in ('all', 'auto', 'static:15')])
        for row in rows:
            self.assertEqual(list(row), LIVE_FIELDS)
            self.assertTrue(row['bits_equal'], row)
            self.assertGreater(row['compared'], 5)
            self.assertGreater(row['seconds'], 0)
            self.assertEqual(row['dropped'] == 0, row['rule'] == 'all', row)
            self.assertEqual(row['best_static'], 15)
            self.assertEqual(row['decide_ns'] is None, row['rule'] != 'auto', row)
        self.assertEqual([(bar['name'], bar['holds']) for bar in bars['bars']],
                         [('auto_one_slow', None)])

    def test_options_of_the_virtual_clock_are_refused_without_it(self):
        for options in ['--check'], ['--rate-2'], ['--seeds', '1'], ['--transport', 'udp'], \
                ['--virtual', '--unit', '50']:
            answer = bench('backup', *options)
            self.assertEqual(answer.returncode, 2)
            self.assertIn('--virtual', answer.stderr)

    def test_rules_that_no_service_has_are_refused(self):
        answer = bench('backup', '--rules', 'before')
        self.assertEqual(answer.returncode, 1)
        self.assertIn('no service has the rule "before"', answer.stderr)


if __name__ == '__main__':
    tap.main()
