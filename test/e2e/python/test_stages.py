"""Tests stages at the Python door against a real service: a training with wide and narrow stages
has the bits of one process; a border loses no push; wrong plans, deaths and early goodbyes are
errors."""
import concurrent.futures
import errno
import json
import os
import signal
import tempfile

import numpy

import harness
import python_case
import ranks
import gradpool
import test_outputs
from python_case import Case, setUpModule, tearDownModule  # noqa: F401

WORKERS, DIM, SAMPLES, BATCH = 4, 8, 96, 16
RATE = numpy.float32(0.25)    # a power of two
LONG_MS = 120000


# ---- SVRG: a wide stage for the full gradient, then narrow ones ----

def samples():
    """Returns (samples, targets) of a linear regression whose sums have no rounding: small whole
    numbers times powers of two."""
    random = numpy.random.default_rng(7)
    data = random.integers(-2, 3, (SAMPLES, DIM)).astype(numpy.float32)
    truth = random.integers(-3, 4, DIM).astype(numpy.float32)
    return data, data @ truth


def slope(data, targets, weights, which):
    """Returns the summed gradient of the squared errors of some samples."""
    part = data[which]
    return (part.T @ (part @ weights - targets[which])).astype(numpy.float32)


def rounded(gradient):
    """Returns the gradient with few binary digits, so that sums in any grouping have equal bits."""
    return numpy.round(gradient / SAMPLES * 1024).astype(numpy.float32) / 1024


def parts(first, count, workers):
    """Returns the slices of all members, as Stage.steps() deals them."""
    return [slice(first + count * i // workers, first + count * (i + 1) // workers)
            for i in range(workers)]


def train_alone(plan, repeat):
    """The training of rank_svrg() in one process."""
    data, targets = samples()
    weights, full = numpy.zeros(DIM, numpy.float32), numpy.zeros(DIM, numpy.float32)
    for _ in range(repeat):
        for entry in plan:
            if entry['name'] == 'full':
                full = numpy.zeros(DIM, numpy.float32)
            for first in range(0, SAMPLES, BATCH):
                gradient = numpy.zeros(DIM, numpy.float32)
                for mine in parts(first, BATCH, entry['workers']):
                    gradient += rounded(slope(data, targets, weights, mine))
                if entry['name'] == 'full':
                    full -= gradient
                else:
                    weights -= RATE * (gradient - full / 64)
    return weights.tolist()


def svrg(job, plan, repeat, batch=BATCH):
    data, targets = samples()
    weights = job.table('weights', DIM, combine='sum')
    full = job.table('full', DIM, combine='sum')
    weights.set(float(RATE))
    full.set(1.0)
    seen = []
    for stage in job.stages(plan, repeat=repeat):
        seen.append([stage.name, stage.workers, stage.place])
        for step in stage.steps(SAMPLES, batch):
            row = weights.pull([0])[0]
            mine = rounded(slope(data, targets, row, step.mine))
            if stage.name == 'full':
                if step.number == 0 and stage.place == 0:
                    mine += full.pull([0])[0]        # forgets the former full gradient
                full.push([0], mine[None])
            else:
                whole = full.pull([0])[0] / 64 if stage.place == 0 else 0
                weights.push([0], (mine - whole)[None].astype(numpy.float32))
            job.clock()
    return weights.pull([0])[0].tolist(), seen


PLAN = [{'name': 'full', 'workers': WORKERS}, {'name': 'sgd', 'workers': 1, 'visit': 'travel'},
        {'name': 'pair', 'workers': 2}]


def rank_svrg(rank, workers):
    return svrg(gradpool.connect().join(os.environ['GRADPOOL_TRANSPORT'], rank, workers), PLAN, 3)


class Training(Case):
    def test_stages_have_the_bits_of_one_process(self):
        alone = train_alone(PLAN, 3)
        for transport in 'shm', 'tcp':
            ended = ranks.run_ranks('rank_svrg', WORKERS, GRADPOOL_TRANSPORT=transport)
            for weights, _ in ended:
                self.assertEqual(weights, alone, transport)
            self.check_places([seen for _, seen in ended])

    def check_places(self, seen):
        names = [entry['name'] for entry in PLAN] * 3
        for stages in seen:
            self.assertEqual([name for name, _, _ in stages], names)
        for index, entry in enumerate(PLAN * 3):
            places = sorted(stages[index][2] for stages in seen if stages[index][2] is not None)
            self.assertEqual(places, list(range(entry['workers'])))
        travellers = [rank for index in (1, 4, 7) for rank in range(WORKERS)
                      if seen[rank][index][2] is not None]
        self.assertEqual(travellers, [0, 2, 3])


# ---- borders, with all ranks in this process ----

def together(jobs, call):
    """Calls `call`(job) in one thread for each job. Returns the results, or raises an error."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(call, job) for job in jobs]]


def errors_of(jobs, call):
    """Calls `call`(job) in one thread for each job. Returns the errors; None: no error."""
    def caught(job):
        try:
            call(job)
        except gradpool.GradpoolError as error:
            return error
    return together(jobs, caught)


def ones(table, key=0):
    table.push([key], numpy.ones((1, table.dim), numpy.float32))


class Borders(Case):
    def tables(self, workers, **options):
        jobs = self.join(workers)
        tables = {job.rank: job.table('t', 2, **{'combine': 'sum', **options}) for job in jobs}
        for table in tables.values():
            table.set(0.5)
        return jobs, tables

    def test_members_alone_count_in_a_stage(self):
        jobs, tables = self.tables(3, combine='mean')
        plan = [{'name': 'two', 'workers': 2}, {'name': 'one', 'workers': 1, 'visit': 'travel'}]

        def work(job):
            for stage in job.stages(plan, timeout_ms=LONG_MS):
                for _ in stage.steps(1, 1):
                    ones(tables[job.rank])
                    job.clock()
            return tables[job.rank].pull([0]).tolist()
        # stage 'two' steps by the mean of two gradients, stage 'one' by one gradient
        self.assertEqual(together(jobs, work), [[[-1, -1]]] * 3)

    def test_a_border_ends_an_open_clock_and_uneven_clocks(self):
        jobs, tables = self.tables(2)

        def work(job):
            for stage in job.stages([{'name': 'a', 'workers': 2}, {'name': 'b', 'workers': 1}],
                                    timeout_ms=LONG_MS):
                for clock in range(job.rank * 3 + 1 if stage.place is not None else 0):
                    ones(tables[job.rank])
                    if clock < 2:
                        job.clock()
            return tables[job.rank].pull([0])[0, 0].item()
        # rank 0: 1 push in a, 1 in b; rank 1: 4 pushes in a, the last two without clock()
        self.assertEqual(together(jobs, work), [-3, -3])

    def test_a_table_inherits_the_consistency_of_its_stage(self):
        jobs, tables = self.tables(2)

        def work(job):
            seen = []
            for stage in job.stages([{'name': 'asp', 'workers': 2, 'consistency': 'asp'},
                                     {'name': 'bsp', 'workers': 2}], timeout_ms=LONG_MS):
                ones(tables[job.rank], job.rank)
                seen.append(tables[job.rank].pull([job.rank])[0, 0].item())
                job.clock()
            return seen + [tables[job.rank].pull([job.rank])[0, 0].item()]
        # asp: a pull contains the push of its own clock; bsp: only pushes of earlier clocks
        self.assertEqual(together(jobs, work), [[-0.5, -0.5, -1]] * 2)

    def test_settings_of_the_lowest_member_count(self):
        jobs, tables = self.tables(3)
        for rank in range(3):
            tables[rank].set(2.0 ** rank)

        def work(job):
            for stage in job.stages([{'name': 'travel', 'workers': 1, 'visit': 'travel'}], repeat=3,
                                    timeout_ms=LONG_MS):
                if stage.place is not None:
                    ones(tables[job.rank], job.rank)
            return tables[job.rank].pull([0, 1, 2])[:, 0].tolist()
        self.assertEqual(together(jobs, work), [[-1, -2, -4]] * 3)

    def test_a_carry_gives_values_to_new_ranks(self):
        jobs = self.join(4)
        plan = [{'name': 'first', 'workers': 1}, {'name': 'all', 'workers': 4},
                {'name': 'second', 'workers': 1, 'visit': 'travel'}]

        def work(job):
            wide = numpy.zeros((3, 5))
            count = numpy.zeros(3, numpy.float16)
            found = []
            for stage in job.stages([{**entry, 'carry': [wide, count]} for entry in plan], repeat=2,
                                    timeout_ms=LONG_MS):
                found.append([wide.sum().item(), count.sum().item()])
                if stage.place is not None:
                    wide += 1
                    count += 2
            return found
        found = together(jobs, work)
        # each stage adds 1 to `wide` and 2 to `count` on its ranks
        self.assertEqual(found[0], [[15 * n, 6 * n] for n in (0, 1, 2, 3, 4, 5)])
        self.assertEqual(found[3], [[15 * n, 6 * n] for n in (0, 1, 2, 2, 4, 5)])

    def test_units_are_dealt_once_in_an_automatic_stage(self):
        jobs, tables = self.tables(3)
        done = {job.rank: [] for job in jobs}

        def work(job):
            workers = set()
            for stage in job.stages([{'name': 'auto', 'goal': 'frugal'}], repeat=2,
                                    timeout_ms=LONG_MS):
                for step in stage.steps(1000, 10):
                    done[job.rank] += range(1000)[step.mine]
                    workers.add(stage.workers)
                    ones(tables[job.rank])
                    job.clock()
            return sorted(workers)
        workers = together(jobs, work)
        self.assertEqual(sorted(unit for units in done.values() for unit in units),
                         sorted([*range(1000)] * 2))
        self.assertIn(1, workers[0])
        self.assertIn(2, workers[1])    # rank 1 works at least in the trial with two ranks

    def test_a_stage_wider_than_the_job_is_narrowed_unless_it_needs_more(self):
        jobs = self.join(2)
        self.assertEqual(together(jobs, lambda job: [
            stage.workers for stage in job.stages([{'name': 'wide', 'workers': 9}])]), [[2], [2]])
        for error in errors_of(jobs, lambda job: list(job.stages(
                [{'name': 'wide', 'workers': 9, 'workers_min': 3}]))):
            self.assertEqual(error.errno, errno.ENOSPC)
            self.assertRegex(error.strerror, "stage 'wide' needs at least 3 workers .* has 2")
        self.assertEqual(together(jobs, lambda job: [
            stage.workers for stage in job.stages([{'name': 'narrow', 'workers': 1}])]),
            [[1], [1]])


# ---- recording and replay ----

def rank_records(rank, workers):
    job = gradpool.connect().join(os.environ['JOB_NAME'], rank, workers)
    return svrg(job, [{'name': 'full', 'goal': 'fastest'},
                      {'name': 'sgd', 'workers': 1, 'visit': 'travel'}], 4, batch=4)


class Recording(Case):
    def test_a_replay_has_the_stages_and_the_bits_of_its_recording(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = os.path.join(folder, 'first'), os.path.join(folder, 'second')
            recorded = ranks.run_ranks('rank_records', 3, JOB_NAME='recorded',
                                       GRADPOOL_STAGES_RECORD=first)
            replayed = ranks.run_ranks('rank_records', 3, JOB_NAME='replayed',
                                       GRADPOOL_STAGES_REPLAY=first, GRADPOOL_STAGES_RECORD=second)
            self.assertEqual(replayed, recorded)
            with open(first) as file, open(second) as again:
                lines = file.read().splitlines()
                self.assertEqual(again.read().splitlines(), lines)
        self.assertEqual(sum(line.endswith(' sgd') for line in lines), 4)
        # the first trial pauses after 12 steps of 4 samples
        self.assertRegex(lines[0], '^1 0 12 0 full$')
        self.assertRegex(lines[1], '^2 48 12 0,1 full$')

    def test_a_replay_of_another_script_is_refused(self):
        with tempfile.NamedTemporaryFile('w') as file:
            file.write('1 0 0 0,1 other\n')
            file.flush()
            os.environ['GRADPOOL_STAGES_REPLAY'] = file.name
            self.addCleanup(os.environ.pop, 'GRADPOOL_STAGES_REPLAY')
            with self.raises(gradpool.Mismatch, "no line for stage 1 'mine'"):
                list(self.join().stages([{'name': 'mine', 'workers': 1}]))


class Example(Case):
    def test_the_example_in_c_counts_each_unit_once(self):
        done = harness.run([harness.GRADPOOL, 'run', '--workers', '3', '--endpoint',
                            python_case.service.endpoint,
                            harness.BUILD / 'client' / 'gradpool-stage-example'],
                           capture_output=True, text=True)
        self.assertEqual((done.returncode, sorted(done.stdout.splitlines())),
                         (0, [f'[{rank}] units: 1200' for rank in range(3)]), done.stderr)


# ---- wrong calls ----

class Refusals(Case):
    def test_wrong_entries_of_a_plan_are_refused(self):
        job = self.join()
        for entry, *words in (
                ({'workers': 1}, 'name of 1 to 127 bytes'),
                ({'name': 'x' * 128}, 'name of 1 to 127 bytes'),
                ({'name': 'a', 'workers': 0}, "workers of stage 'a' is 0"),
                ({'name': 'a', 'visit': 'jump'}, "visit of stage 'a' is 'jump'", 'stay, travel'),
                ({'name': 'a', 'goal': 'best'}, "goal of stage 'a'", 'fastest, frugal'),
                ({'name': 'a', 'consistency': 'ssp'}, "consistency of stage 'a' is 'ssp'"),
                ({'name': 'a', 'consistency': 'ssp:4294967296'}, "is 'ssp:4294967296'"),
                ({'name': 'a', 'consistency': 'ssp:²'}, "consistency of stage 'a' is 'ssp:²'"),
                ({'name': 'a', 'worker': 1}, "no parameter 'worker'"),
                ({'name': 'a', 'carry': [3]}, 'item 0 of carry', 'expected an array'),
                ({'name': 'a', 'workers': 1, 'workers_min': 2}, 'workers is 1 and workers_min 2'),
                ({'name': 'a', 'workers_min': 3, 'workers_max': 2}, 'workers_max to at least')):
            with self.subTest(words[0]), self.raises(gradpool.Mismatch, *words):
                list(job.stages([entry]))

    def test_an_idle_rank_neither_pulls_nor_pushes(self):
        jobs = self.join(2)
        tables = {job.rank: job.table('t', 2) for job in jobs}
        for job in jobs:
            tables[job.rank].set(0.5)
            job.declare('both', 4, ranks=[0, 1])

        def work(job):
            calls = (lambda: tables[1].pull([1]), lambda: ones(tables[1]), job.clock)
            for stage in job.stages([{'name': 'narrow', 'workers': 1}]):
                if stage.place is None:
                    for call in calls:
                        with self.assertRaisesRegex(gradpool.GradpoolError, "rank 1 .* is idle in "
                                                    "stage 'narrow'") as raised:
                            call()
                        self.assertEqual(raised.exception.errno, errno.EPERM)
                    tables[1].set(0.25)
                else:
                    with self.raises(gradpool.GradpoolError, "tensor 'both': rank 1 is idle"):
                        job.push_pull('both', numpy.zeros(4, numpy.float32))
            job.push_pull('both', numpy.zeros(4, numpy.float32)).wait()
        together(jobs, work)

    def test_a_push_without_settings_of_its_rank_is_refused(self):
        jobs = self.join(2)
        tables = {job.rank: job.table('t', 2) for job in jobs}
        tables[0].set(0.5)

        def work(job):
            for _ in job.stages([{'name': 'both', 'workers': 2}], timeout_ms=LONG_MS):
                if job.rank == 1:
                    with self.raises(gradpool.Mismatch, 'rank 1 pushes', 'gp_table_set()'):
                        ones(tables[1])
        together(jobs, work)

    def test_a_table_after_the_first_stage_is_refused(self):
        job = self.join()
        for _ in job.stages([{'name': 'a', 'workers': 1}]):
            with self.raises(gradpool.GradpoolError, 'declare all tables before the first '
                             'gp_stage_next()'):
                job.table('late', 2)

    def test_a_job_that_continues_has_no_stages(self):
        job = gradpool.connect().join('continues', 0, 1, on_worker_loss='continue')
        with self.raises(gradpool.GradpoolError, 'stages need a job with a fixed set of workers'):
            list(job.stages([{'name': 'a', 'workers': 1}]))

    def test_different_plans_fail_the_job_on_every_rank(self):
        jobs = self.join(3)
        errors = errors_of(jobs, lambda job: list(job.stages(
            [{'name': 'odd' if job.rank == 1 else 'even', 'workers': 2}], timeout_ms=LONG_MS)))
        for error in errors:
            self.assertRegex(error.strerror, r"rank \d asks for stage '(odd|even)'.* rank \d for "
                                             r"'(odd|even)'.*same stages on all ranks")

    def test_different_lengths_of_a_carry_fail_the_job(self):
        jobs = self.join(2)
        for error in errors_of(jobs, lambda job: list(job.stages(
                [{'name': 'a', 'workers': 2, 'carry': [numpy.zeros(job.rank + 1)]}],
                timeout_ms=LONG_MS))):
            self.assertRegex(error.strerror, 'carry of (8|16) bytes.*carry of (8|16) bytes')


# ---- ranks that do not come ----

class Late(Case):
    def test_a_border_names_the_ranks_that_are_late(self):
        jobs = self.join(3)
        with self.raises(gradpool.Timeout, 'border before the next stage: ranks 1, 2 are not in '
                         'gp_stage_end() yet'):
            list(jobs[0].stages([{'name': 'a', 'workers': 1}], timeout_ms=300))

    def test_a_border_names_a_rank_that_has_not_joined(self):
        job = gradpool.connect().join('absent', 0, 2)
        with self.raises(gradpool.Timeout, 'rank 1 (has not joined) is not in gp_stage_end()'):
            list(job.stages([{'name': 'a', 'workers': 1}], timeout_ms=300))

    def test_a_repeated_border_completes(self):
        jobs = self.join(2)
        with self.raises(gradpool.Timeout, 'rank 1'):
            list(jobs[0].stages([{'name': 'a', 'workers': 2}], timeout_ms=300))
        self.assertEqual(together(jobs, lambda job: [
            stage.place for stage in job.stages([{'name': 'a', 'workers': 2}],
                                                timeout_ms=LONG_MS)]), [[0], [1]])

    def test_an_idle_rank_names_the_member_that_does_not_end(self):
        jobs = self.join(2)
        stages = together(jobs, lambda job: job.stages([{'name': 'long', 'workers': 1}],
                                                       timeout_ms=LONG_MS, idle_timeout_ms=300))
        together(stages, next)
        with self.raises(gradpool.Timeout, "end of stage 'long': rank 0 is not in gp_stage_end()"):
            next(stages[1])

    def test_a_rank_that_leaves_inside_a_stage_ends_it_for_all(self):
        jobs = self.join(3)
        stages = together(jobs, lambda job: job.stages([{'name': 'part', 'workers': 2}],
                                                       timeout_ms=LONG_MS))
        together(stages, next)
        waiting = concurrent.futures.ThreadPoolExecutor(2)
        self.addCleanup(waiting.shutdown)
        ends = [waiting.submit(next, stages[rank], None) for rank in (1, 2)]
        jobs[0].leave()
        for end in ends:
            with self.raises(gradpool.PeerLost, 'rank 0 has left'):
                end.result()


    def test_a_leave_ends_the_wait_of_an_idle_rank(self):
        jobs = self.join(2)
        stages = together(jobs, lambda job: job.stages([{'name': 'long', 'workers': 1}],
                                                       timeout_ms=LONG_MS))
        together(stages, next)
        waiting = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(waiting.shutdown)
        end = waiting.submit(next, stages[1], None)
        self.assertFalse(concurrent.futures.wait([end], timeout=0.3).done)
        jobs[1].leave()
        with self.assertRaises(gradpool.GradpoolError):
            end.result(LONG_MS / 1000)


# ---- views ----

class Views(Case):
    def test_jobs_and_explain_show_the_stage(self):
        service, name = python_case.service, 'test_jobs_and_explain_show_the_stage'
        jobs = self.join(3)
        self.assertNotIn('stage', service.job(name))
        stages = together(jobs, lambda job: job.stages([{'name': 'sgd', 'workers': 2}],
                                                       timeout_ms=LONG_MS))
        together(stages, next)
        stage = service.job(name)['stage']
        test_outputs.validate(stage, 'stage')
        self.assertEqual((stage['name'], stage['number'], stage['workers'], stage['choice']),
                         ('sgd', 1, 2, 'fixed'))
        self.assertGreater(stage['hand_over_ns'], 0)
        for command in 'jobs', 'explain':
            self.assertRegex(service.ask(command, name).stdout,
                             r'stage: sgd, number 1, 2 workers \(fixed\), begun [0-9.]+ s ago, '
                             r'[0-9.]+ ms after the end of the previous stage')
        explained = json.loads(service.ask('explain', name, '--json').stdout)
        self.assertEqual(explained['jobs'][0]['stage']['name'], 'sgd')
        self.assertEqual(together(stages, lambda stage: next(stage, None)), [None] * 3)
        stage = service.job(name)['stage']
        self.assertEqual((stage['name'], stage['workers'], stage['choice']), ('', 3, 'all ranks'))


# ---- deaths ----

def rank_dies(rank, workers):
    """A member or an idle rank dies inside a stage. Returns the error of this rank."""
    job = gradpool.connect().join(os.environ['JOB_NAME'], rank, workers)
    table = job.table('t', 2)
    table.set(0.5)
    try:
        for stage in job.stages([{'name': 'all', 'workers': 3}, {'name': 'some', 'workers': 2}],
                                timeout_ms=LONG_MS):
            if stage.name == 'some' and rank == int(os.environ['DIES']):
                os.kill(os.getpid(), signal.SIGKILL)
            while stage.name == 'some' and stage.place is not None:
                ones(table)
                job.clock()
                table.pull([0], LONG_MS)
    except gradpool.PeerLost as error:
        return error.strerror
    return None


class Deaths(Case):
    def check_death(self, dies):
        processes = ranks.start_ranks('rank_dies', 3, JOB_NAME=f'dies-{dies}', DIES=str(dies))
        ended = [harness.finish(process, ranks.RANK_TIMEOUT_S) for process in processes]
        self.assertEqual(processes[dies].returncode, -signal.SIGKILL)
        for rank in {0, 1, 2} - {dies}:
            self.assertIn(f'rank {dies}', ended[rank][0], ended[rank][1])

    def test_a_member_that_dies_fails_the_job_on_every_rank(self):
        self.check_death(1)

    def test_an_idle_rank_that_dies_fails_the_job_on_every_rank(self):
        self.check_death(2)

    def test_borders_continue_after_the_loss_of_an_aggregator(self):
        service = harness.Service(aggregators=1)
        self.addCleanup(service.end)
        clients = [gradpool.connect(service.endpoint) for _ in range(2)]
        jobs = [client.join('rows', rank, 2) for rank, client in enumerate(clients)]
        for client in clients:
            self.addCleanup(client.close)
        tables = {job.rank: job.table('t', 2) for job in jobs}

        def work(job):
            table, errors = tables[job.rank], []
            table.set(1.0)
            for stage in job.stages([{'name': 'one', 'workers': 1, 'visit': 'travel'}], repeat=3,
                                    timeout_ms=LONG_MS, idle_timeout_ms=LONG_MS):
                if stage.place is None:
                    continue
                if stage.number == 1:
                    ones(table)
                    job.clock()
                    os.kill(service.pids()[0], signal.SIGKILL)
                try:
                    while True:
                        table.pull([0])
                except gradpool.GradpoolError as error:
                    errors.append(error.errno)
            return errors
        self.assertEqual(together(jobs, work), [[errno.EOWNERDEAD] * 2, [errno.EOWNERDEAD]])

    def test_a_killed_coordinator_delays_a_border_only(self):
        service = harness.Service()
        self.addCleanup(service.end)
        clients = [gradpool.connect(service.endpoint) for _ in range(2)]
        jobs = [client.join('border', rank, 2) for rank, client in enumerate(clients)]
        for client in clients:
            self.addCleanup(client.close)
        tables = {job.rank: job.table('t', 2, combine='sum') for job in jobs}
        for table in tables.values():
            table.set(1.0)
        stages = together(jobs, lambda job: job.stages(
            [{'name': 'one', 'workers': 1, 'visit': 'travel'}], repeat=3, timeout_ms=LONG_MS,
            idle_timeout_ms=LONG_MS))
        for number in range(3):
            now = together(stages, next)
            members = [job.rank for job, stage in zip(jobs, now) if stage.place is not None]
            self.assertEqual(members, [number % 2])
            service.serve.kill()
            ones(tables[number % 2])
            jobs[number % 2].clock()
            self.assertEqual(tables[number % 2].pull([0])[0, 0].item(), -number - 1)
            service.start(f'again-{number}')
        self.assertEqual(together(stages, lambda stage: next(stage, None)), [None, None])
        for job in jobs:
            self.assertEqual(tables[job.rank].pull([0])[0, 0].item(), -3)


if __name__ == '__main__':
    ranks.main(globals())
