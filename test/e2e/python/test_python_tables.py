"""Tests tables at the Python door against a real service: rows have the bits of a replay in numpy;
each wrong call is an error that names the mistake; deaths end in errors on the other ranks."""
import errno
import os
import pathlib
import pickle
import signal
import unittest

import numpy

import harness
import ranks
import gradpool
from python_case import Case, setUpModule, tearDownModule  # noqa: F401

CLOCKS, KEYS, DIM = 12, 40, 5
LR, EPSILON, DECAY = numpy.float32(0.05), numpy.float32(1e-10), numpy.float32(0.01)
BATCH_MOST = 60     # more than KEYS, so that keys occur several times
ENOUGH = 10 ** 6    # number of clocks that no test reaches


# ---- a training, and its replay ----

def drawn(rank, clock):
    """Returns the pushes of a rank in a clock: up to two of (keys, gradients)."""
    random = numpy.random.default_rng([rank, clock])
    pushes = []
    for _ in range(random.integers(3)):
        keys = random.integers(0, KEYS, random.integers(BATCH_MOST + 1))
        pushes.append((keys, random.standard_normal((len(keys), DIM), numpy.float32)))
    return pushes


def sums_of(pushes):
    """Returns {key: sum of its gradients}. The gradients of one push are added first, in order of
    positions. Then the sums of the pushes are added, in order of ranks and pushes."""
    sums = {}
    for keys, gradients in pushes:
        own = {}
        for key, gradient in zip(keys.tolist(), gradients):
            own[key] = own[key] + gradient if key in own else gradient
        for key, gradient in own.items():
            sums[key] = sums[key] + gradient if key in sums else gradient
    return sums


def replay_sgd(row, gradient, _):
    row -= LR * (gradient + DECAY * row)


def replay_adagrad(row, gradient, squares):
    squares += gradient * gradient
    row -= LR * (gradient / (numpy.sqrt(squares) + EPSILON))


class Replica:
    """A table, and the rows that it must have."""

    def __init__(self, job, rule, update, settings, combine, **options):
        self.table = job.table(rule, DIM, rule, combine=combine, **options)
        self.table.set(float(LR), **settings)
        self.divisor = numpy.float32(job.workers if combine == 'mean' else 1)
        self.update, self.squares = update, numpy.zeros((KEYS, DIM), numpy.float32)
        self.rows = self.table.pull(numpy.arange(KEYS))

    def replay(self, pushes):
        for key, gradient in sums_of(pushes).items():
            self.update(self.rows[key], gradient / self.divisor, self.squares[key])

    def differences(self, keys):
        found = self.table.pull(keys)
        return int((found.view(numpy.uint32) != self.rows[keys].view(numpy.uint32)).sum())


def rank_trains(rank, workers):
    """Trains two tables, and compares all rows after each clock. Returns (first rows of each table,
    values that differ, values that have moved)."""
    job = gradpool.connect().join('trains', rank, workers)
    replicas = [
        Replica(job, 'sgd', replay_sgd, {'weight_decay': float(DECAY)}, 'mean',
                initial=('normal', 0.1), seed=7),
        Replica(job, 'adagrad', replay_adagrad, {}, 'sum', initial=0.5, keys=KEYS)]
    first, wrong = [replica.rows.copy() for replica in replicas], 0
    for clock in range(CLOCKS):
        for replica in replicas:
            for keys, gradients in drawn(rank, clock):
                replica.table.push(keys, gradients)
            replica.replay([push for one in range(workers) for push in drawn(one, clock)])
        job.clock()
        wrong += sum(replica.differences(numpy.arange(KEYS).reshape(8, 5)) for replica in replicas)
    moved = [int((replica.rows != rows).sum()) for replica, rows in zip(replicas, first)]
    job.barrier()
    job.leave()
    return [rows.tolist() for rows in first], wrong, moved


class Replays(Case):
    def check(self, workers):
        found = ranks.run_ranks('rank_trains', workers)
        for first, wrong, moved in found:
            self.assertEqual((first, wrong), (found[0][0], 0))
            self.assertEqual(moved, [KEYS * DIM] * 2)
        normal, constant = map(numpy.array, found[0][0])
        self.assertEqual(set(constant.ravel()), {0.5})
        self.assertEqual(len(set(normal.ravel())), normal.size)
        self.assertLess(abs(normal).max(), 0.5)

    def test_rows_of_two_workers_have_the_bits_of_a_replay(self):
        self.check(2)

    def test_rows_of_three_workers_have_the_bits_of_torch(self):
        self.check(3)


def rank_adds(rank, workers, consistency):
    """Pushes whole numbers, whose sums are exact in any order. Returns the rows at the end."""
    job = gradpool.connect().join('adds', rank, workers)
    table = job.table('t', DIM, combine='sum', consistency=consistency)
    table.set(1.0)
    random = numpy.random.default_rng(rank)
    for clock in range(40):
        keys = random.integers(0, KEYS, 30)
        seen = table.pull(keys)
        table.push(keys, numpy.full((30, DIM), -1 - clock % 3, numpy.float32))
        assert (table.pull(keys) > seen).all()
        job.clock()
    job.barrier()
    rows = table.pull(numpy.arange(KEYS))
    job.barrier()
    job.leave()
    return rows.tolist()


def rank_adds_with_ssp(rank, workers):
    return rank_adds(rank, workers, 'ssp:1')


def rank_adds_with_asp(rank, workers):
    return rank_adds(rank, workers, 'asp')


def sums_added(workers):
    sums = numpy.zeros((KEYS, DIM))
    for rank in range(workers):
        random = numpy.random.default_rng(rank)
        for clock in range(40):
            numpy.add.at(sums, random.integers(0, KEYS, 30), 1 + clock % 3)
    return sums.tolist()


class Sums(Case):
    def test_no_push_with_ssp_is_lost_or_counts_twice(self):
        for rows in ranks.run_ranks('rank_adds_with_ssp', 3):
            self.assertEqual(rows, sums_added(3))

    def test_no_push_with_asp_is_lost_or_counts_twice(self):
        for rows in ranks.run_ranks('rank_adds_with_asp', 2):
            self.assertEqual(rows, sums_added(2))


class Calls(Case):
    """All ranks of a job run in this process."""

    def tables(self, workers=1, **options):
        jobs = self.join(workers) if workers > 1 else [self.join()]
        tables = [job.table('t', 2, **options) for job in jobs]
        for table in tables:
            table.set(0.5)
        return jobs, tables

    def test_a_pull_returns_the_rows_before_the_pushes_of_its_clock(self):
        jobs, tables = self.tables(2, combine='sum')
        early = tables[0].start_pull([3])
        for rank, (job, table) in enumerate(zip(jobs, tables)):
            table.push([3, 3], numpy.full((2, 2), rank + 1.0, numpy.float32))
            self.assertEqual(table.pull([3]).tolist(), [[0, 0]])
            job.clock()
        self.assertEqual(early.wait().tolist(), [[0, 0]])
        for table in tables:
            self.assertEqual(table.pull([3, 4]).tolist(), [[-3, -3], [0, 0]])

    def test_a_mean_is_divided_by_the_number_of_ranks(self):
        jobs, tables = self.tables(2)
        tables[0].push([7], numpy.ones((1, 2), numpy.float32))
        for job in jobs:
            job.clock()
        self.assertEqual(tables[1].pull([7]).tolist(), [[-0.25, -0.25]])

    def test_keys_have_any_shape_and_any_type_of_whole_numbers(self):
        (job,), (table,) = self.tables()
        table.push(2 ** 64 - 1, numpy.ones(2, numpy.float32))
        job.clock()
        for keys, shape in ((2 ** 64 - 1, (2,)), ([], (0, 2)),
                            (numpy.zeros((3, 0), 'u1'), (3, 0, 2)),
                            (numpy.arange(12, dtype='i2').reshape(3, 4)[:, ::2], (3, 2, 2)),
                            (numpy.array([[2 ** 64 - 1, 0]], 'u8'), (1, 2, 2))):
            rows = table.pull(keys)
            self.assertEqual((rows.shape, rows.dtype), (shape, numpy.float32))
        self.assertEqual(rows.tolist(), [[[-0.5, -0.5], [0, 0]]])

    def test_a_push_with_a_request_ends_after_its_clock(self):
        (job,), (table,) = self.tables()
        request = table.start_push([1], numpy.ones((1, 2), numpy.float32))
        with self.raises(gradpool.GradpoolError, "table 't'", 'clock 1'):
            request.wait()
        self.assertFalse(request.done())
        job.clock()
        request.wait()
        self.assertTrue(request.done())
        self.assertEqual(table.pull([1]).tolist(), [[-0.5, -0.5]])

    def push_one(self, table):
        table.push([3], numpy.ones((1, 2), numpy.float32))

    def test_a_rank_with_ssp_waits_exactly_beyond_its_staleness(self):
        jobs, tables = self.tables(2, combine='sum', consistency='ssp:2')
        for clock in range(3):
            self.assertEqual(tables[0].pull([3]).tolist(), [[-clock / 2] * 2])
            self.push_one(tables[0])
            self.assertEqual(tables[0].pull([3]).tolist(), [[-(clock + 1) / 2] * 2])
            jobs[0].clock()
        early = tables[0].start_pull([3])
        self.assertFalse(early.done(300))
        self.push_one(tables[1])
        self.assertFalse(early.done(300))
        jobs[1].clock()
        self.assertEqual(early.wait().tolist(), [[-2, -2]])
        jobs[0].clock()
        self.assertFalse(tables[0].start_pull([3]).done(300))

    def test_a_rank_with_asp_never_waits(self):
        jobs, tables = self.tables(2, combine='sum', consistency='asp')
        for clock in range(100):
            self.assertEqual(tables[0].pull([3]).tolist(), [[-clock / 2] * 2])
            tables[0].set(0.5)
            request = tables[0].start_push([3], numpy.ones((1, 2), numpy.float32))
            request.wait()
            jobs[0].clock()
        tables[1].start_push([3], numpy.ones((1, 2), numpy.float32)).wait()
        self.assertEqual(tables[1].pull([3]).tolist(), [[-50.5, -50.5]])

    def test_a_push_without_bsp_waits_for_the_first_settings(self):
        jobs = self.join(2)
        tables = [job.table('t', 2, combine='sum', consistency='asp') for job in jobs]
        request = tables[1].start_push([3], numpy.ones((1, 2), numpy.float32))
        self.assertFalse(request.done(300))
        tables[0].set(0.5)
        request.wait()
        self.assertEqual(tables[0].pull([3]).tolist(), [[-0.5, -0.5]])

    def test_gradients_may_be_read_only(self):
        (job,), (table,) = self.tables()
        gradients = numpy.arange(6, dtype=numpy.float32).reshape(3, 2)
        gradients.setflags(write=False)
        table.push([1, 2, 3], gradients)
        table.push([1], memoryview(bytes(8)).cast('f', (1, 2)))
        table.push([], gradients[:0])
        job.clock()
        self.assertEqual(table.pull([1, 2, 3]).tolist(), [[0, -0.5], [-1, -1.5], [-2, -2.5]])

    def test_halves_are_stored_and_rows_are_float32(self):
        for dtype in 'float16', 'bfloat16':
            job = self.client_job(dtype)
            table = job.table('t', 2, dtype=dtype)
            table.set(1.0)
            table.push([1], numpy.full((1, 2), -1.001, numpy.float32))
            job.clock()
            self.assertEqual(table.pull([1]).tolist(),
                             [[{'float16': 1.0009765625, 'bfloat16': 1.0}[dtype]] * 2])

    def client_job(self, name):
        client = gradpool.connect()
        self.addCleanup(client.close)
        return client.join(f'{self.id().rsplit(".", 1)[-1]}-{name}', 0, 1)

    def test_settings_count_from_their_clock_on(self):
        (job,), (table,) = self.tables()
        found = []
        for lr in 0.5, 0.25, None:
            if lr:
                table.set(lr)
            table.push([1], numpy.ones((1, 2), numpy.float32))
            job.clock()
            found.append(table.pull([1])[0, 0].item())
        self.assertEqual(found, [-0.5, -0.75, -1.0])

    def test_dropped_pulls_and_pushes_complete_and_keep_their_memory_until_then(self):
        (job,), (table,) = self.tables()
        for _ in range(300):        # more than a lane stores at one time
            table.start_pull(numpy.arange(1000))
            table.start_push([5], numpy.ones((1, 2), numpy.float32))
            job.clock()
            table.pull([5])
        self.assertEqual(table.pull([5]).tolist(), [[-150, -150]])

    def test_every_rule_of_the_service_is_known(self):
        job = self.join()
        for rule, settings in (('sgd', {}), ('adagrad', {'eps': 1e-9}), ('adagrad-one', {}),
                               ('adam', {'betas': (0.5, 0.9)}), ('ftrl', {'l1': 0.1})):
            table = job.table(rule, 3, rule)
            table.set(0.1, **settings)
            table.push([1], numpy.ones((1, 3), numpy.float32))
        job.clock()
        for rule in 'sgd', 'adagrad', 'adagrad-one', 'adam', 'ftrl':
            row = job.table(rule, 3, rule).pull(1)
            self.assertTrue((row < 0).all(), (rule, row))


class Refusals(Case):
    def test_keys_that_are_invalid_are_refused(self):
        table = self.join().table('t', 2, keys=10)
        for keys, *words in (
                ([1, -2], 'key -2 at position 1', 'expected keys from 0'),
                ([0.5], 'dtype float64', 'expected whole numbers'),
                ([True], 'dtype bool'), (['a'], 'dtype <U1'), ([2 ** 64], 'dtype object'),
                ([3, 10], 'key 10 at position 1', 'keys below 10')):
            with self.subTest(words[0]), self.raises(gradpool.Mismatch, "table 't'", *words):
                table.pull(keys)

    def test_gradients_of_another_kind_or_shape_are_refused(self):
        table = self.join().table('t', 2)
        wide = numpy.zeros((3, 4), numpy.float32)
        for gradients, *words in (
                (numpy.zeros((3, 2)), "format 'd'", 'expected float32'),
                (numpy.zeros((3, 2), int), "format 'l'", 'expected float32'),
                (numpy.zeros((3, 2), numpy.float16), "format 'e'", 'expected float32'),
                (wide, 'shape (3, 4), expected (3, 2): one row for each key'),
                (wide[:2, :2], 'shape (2, 2), expected (3, 2)'),
                (wide[:, ::2], 'not contiguous'), ([[0.0, 0.0]] * 3, 'a list')):
            for push in table.push, table.start_push:
                with self.subTest(words[0]), self.raises(
                        gradpool.Mismatch, "gradients of table 't'", *words):
                    push([1, 2, 3], gradients)

    def test_declarations_that_cannot_be_are_refused(self):
        job = self.join()
        job.table('t', 2)
        for call, *words in (
                (lambda: job.table('u', 0), "table 'u'", 'dim is 0'),
                (lambda: job.table('u', 4097), "table 'u'", 'dim is 4097'),
                (lambda: job.table('u', -1), "dim of table 'u' is -1"),
                (lambda: job.table('a/b', 1), "a name without '/'"),
                (lambda: job.table(7, 1), "the table's name is 7"),
                (lambda: job.table('u', 1, keys=-1), "keys of table 'u' is -1"),
                (lambda: job.table('u', 1, seed=0.5), "seed of table 'u' is 0.5"),
                (lambda: job.table('u', 1, initial='x'), "initial of table 'u' is 'x'",
                 'expected a real number'),
                (lambda: job.table('u', 1, initial=('x', 1)),
                 "expected a number, ('uniform', v) or ('normal', v)"),
                (lambda: job.table('u', 2, 'lion'),
                 "rule of table 'u' is 'lion'; choose one of sgd, adagrad, adagrad-one"),
                (lambda: job.table('u', 2, dtype='float64'), "dtype of table 'u'", 'bfloat16'),
                (lambda: job.table('u', 2, combine='max'), "combine of table 'u'", 'mean, sum'),
                (lambda: job.table('u', 2, consistency='ssp'), "consistency of table 'u' is 'ssp'",
                 '"ssp:N" with the number of clocks that a rank may be ahead'),
                (lambda: job.table('u', 2, consistency='bsp:1'), "table 'u' is 'bsp:1'"),
                (lambda: job.table('u', 2, consistency='ssp:-1'), "table 'u' is 'ssp:-1'"),
                (lambda: job.table('u', 2, consistency=2), "table 'u' is 2; choose"),
                (lambda: job.table('u', 2, initial=('normal', -1)), "table 'u'", 'normal'),
                (lambda: job.table('u', 2, 'ftrl', initial=1), "table 'u'", 'ftrl'),
                (lambda: job.table('t', 3), "table 't'", 'was declared before')):
            with self.subTest(words[0]), self.raises(gradpool.Mismatch, *words):
                call()

    def test_settings_that_a_rule_lacks_are_refused(self):
        job = self.join()
        table, adam = job.table('t', 2), job.table('t2', 2, 'adam')
        for call, *words in (
                (lambda: table.set(0.1, eps=1), 'rule sgd', "no setting 'eps'",
                 'its settings are lr', 'weight_decay'),
                (lambda: table.set('fast'), "lr is 'fast'", 'expected a real number'),
                (lambda: table.set(0.1, betas=1), "no setting 'betas'"),
                (lambda: adam.set(0.1, betas=0.9), 'betas is 0.9, expected two numbers'),
                (lambda: table.set(-1), "table 't'", 'rate'),
                (lambda: table.set(float('nan')), "table 't'", 'rate')):
            with self.subTest(words[0]), self.raises(gradpool.Mismatch, "table 't", *words):
                call()

    def test_tables_come_before_the_first_clock(self):
        job = self.join()
        with self.raises(gradpool.Mismatch, 'has no table'):
            job.clock()
        job.table('t', 2)
        job.clock()
        with self.raises(gradpool.GradpoolError, "table 'u'", 'before the first'):
            job.table('u', 2)

    def test_a_job_that_grows_has_no_tables(self):
        with gradpool.connect() as client, client.join('grows', 0, 1, workers_max=2) as job:
            with self.raises(gradpool.GradpoolError, "table 't'"):
                job.table('t', 2)

    def test_a_table_of_a_job_that_was_left_is_refused_by_every_call(self):
        job = self.join()
        table = job.table('t', 2)
        job.leave()
        for call in (lambda: table.pull([1]), lambda: table.start_pull([1]), job.clock,
                     lambda: table.push([1], numpy.zeros((1, 2), numpy.float32)),
                     lambda: table.set(0.1), lambda: job.table('u', 2)):
            with self.raises(gradpool.GradpoolError, 'closed'):
                call()

    def test_a_pull_after_the_job_was_left_is_an_error_that_names_the_leave(self):
        jobs = self.join(2)
        tables = [job.table('t', 2) for job in jobs]
        jobs[0].clock()
        pull = tables[0].start_pull([1])
        jobs[0].leave()
        with self.raises(gradpool.GradpoolError, ' has been left: join the job again'):
            pull.wait()

    def test_a_late_rank_is_named(self):
        jobs = self.join(2)
        tables = [job.table('t', 2) for job in jobs]
        jobs[0].clock()
        pull = tables[0].start_pull([1])
        for wait in pull.wait, lambda timeout_ms: tables[0].pull([1], timeout_ms):
            self.times_out(wait, "table 't'", 'clock 1', 'rank 1')
        jobs[1].clock()
        self.assertEqual(pull.wait().tolist(), [[0, 0]])

    def test_a_rank_with_ssp_that_is_too_far_behind_is_named(self):
        jobs = self.join(2)
        tables = [job.table('t', 2, consistency='ssp:1') for job in jobs]
        for _ in range(2):
            jobs[0].clock()
        pull = tables[0].start_pull([1])
        self.times_out(pull.wait, "table 't' clock 3", 'no end of clock 1', 'rank 1')
        jobs[1].clock()
        self.assertEqual(pull.wait().tolist(), [[0, 0]])

    def test_gradients_that_are_not_finite_are_counted_and_skipped(self):
        job = self.join()
        table = job.table('t', 2)
        table.set(1.0)
        gradients = numpy.ones((2, 2), numpy.float32)
        gradients[1, 0] = numpy.nan
        request = table.start_push([1, 2], gradients)
        job.clock()
        with self.raises(gradpool.GradpoolError, "table 't'", 'skipped: 1', 'key 2'):
            request.wait()
        table.push([1, 2], gradients)
        error = self.error_of_clock(job)
        self.assertEqual(error.errno, errno.EDOM)
        self.assertIn('key 2', str(error))
        self.assertEqual(table.pull([1, 2]).tolist(), [[-2, -2], [0, 0]])

    def test_a_name_that_the_module_lacks_is_named(self):
        with self.raises(AttributeError, "module 'gradpool.tables' has no attribute 'Row'"):
            gradpool.tables.Row  # noqa: B018

    def test_copies_and_pickles_of_a_table_are_refused(self):
        table = self.join().table('t', 2)
        with self.raises(gradpool.Mismatch, "table 't'", 'cannot be copied or pickled'):
            pickle.dumps(table)


# ---- deaths ----

def rank_goes_on(rank, workers):
    """Trains until the library raises an error. Returns its class, errno and text."""
    job = gradpool.connect().join('deaths', rank, workers)
    table = job.table('t', 2)
    table.set(0.1)
    try:
        for clock in range(ENOUGH):
            table.push([clock % 7], numpy.ones((1, 2), numpy.float32))
            job.clock()
            table.pull([clock % 7])
            if clock == 5:
                pathlib.Path(os.environ['TEST_FOLDER'], f'trains.{rank}').touch()
    except gradpool.GradpoolError as error:
        pathlib.Path(os.environ['TEST_FOLDER'], f'ended.{rank}').touch()
        # the end of this process would itself cause the error of the other ranks
        harness.until(lambda: len(list(pathlib.Path(os.environ['TEST_FOLDER']).glob('ended.*')))
                      == int(os.environ['TEST_ENDS']), 'the other ranks have their errors')
        return type(error).__name__, error.errno, str(error)
    return 'no error', 0, ''


def rank_outlives(rank, workers):
    """Rank 1 stops in its third clock, and is killed. The other ranks continue without rank 1.
    Returns the last row."""
    folder = pathlib.Path(os.environ['TEST_FOLDER'])
    job = gradpool.connect().join('outlives', rank, workers, on_worker_loss='continue')
    table = job.table('t', 2, combine='sum', consistency='ssp:2')
    table.set(1.0)
    for clock in range(2 if rank == 1 else 30):
        table.push([3], numpy.ones((1, 2), numpy.float32))
        table.pull([3])
        job.clock()
        if clock == (1 if rank == 1 else 3):     # soon afterwards the other ranks wait for rank 1
            (folder / f'stands.{rank}').touch()
    while rank == 1:
        signal.pause()
    job.barrier()
    row = table.pull([3]).tolist()
    job.leave()
    return row


class Continues(unittest.TestCase):
    def setUp(self):
        self.service = harness.Service()
        self.addCleanup(self.service.end)

    def test_a_killed_worker_frees_the_minimum_of_a_job_that_continues(self):
        folder = self.service.folder
        processes = ranks.start_ranks('rank_outlives', 3, TEST_FOLDER=str(folder),
                                      GRADPOOL_ENDPOINT=self.service.endpoint)
        harness.until(lambda: len(list(folder.glob('stands.*'))) == 3
                      or any(process.poll() is not None for process in processes),
                      'every rank stands', process=self.service.serve)
        processes[1].send_signal(signal.SIGKILL)
        processes[1].communicate()
        for row in ranks.finish_ranks([processes[0], processes[2]]):
            self.assertEqual(row, [[-62, -62]])


class Deaths(unittest.TestCase):
    def start(self, ends):
        self.service = harness.Service()
        self.addCleanup(self.service.end)
        processes = ranks.start_ranks(
            'rank_goes_on', 3, GRADPOOL_ENDPOINT=self.service.endpoint,
            TEST_FOLDER=str(self.service.folder), TEST_ENDS=str(ends))
        harness.until(lambda: len(list(self.service.folder.glob('trains.*'))) == 3
                      or any(process.poll() is not None for process in processes),
                      'every rank trains', process=self.service.serve)
        return processes

    def test_a_killed_worker_is_an_error_of_the_others(self):
        processes = self.start(ends=2)
        processes[1].send_signal(signal.SIGKILL)
        processes[1].communicate()
        for kind, number, text in ranks.finish_ranks([processes[0], processes[2]]):
            self.assertEqual((kind, number), ('PeerLost', errno.ECONNRESET), text)
            self.assertIn('rank 1', text)

    def test_killed_aggregators_are_an_error_of_every_rank(self):
        processes = self.start(ends=3)
        harness.kill_all(self.service.pids('up'))
        for kind, number, text in ranks.finish_ranks(processes):
            self.assertEqual((kind, number), ('GradpoolError', errno.EOWNERDEAD), text)
            self.assertRegex(text, r"table 't'.* shards? \d")


if __name__ == '__main__':
    ranks.main(globals())
