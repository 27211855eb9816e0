"""Tests gradpool.torch.elastic: the script of HOROVOD.md as it stands, in a pool whose workers
join, leave and are killed, and calls that are refused."""
import contextlib
import errno
import io
import json
import os
import signal
import sys
import types
import unittest
import unittest.mock

import harness
import ranks
import test_elastic_pool as pools
import test_elastic_runner as runners
from harness import until

PAGE = runners.SOURCE / 'client/python/HOROVOD.md'
TRAINS_S = runners.TRAINS_S

# Runs the page's script. The state gets one value more: how often each sample was trained in the
# model that the workers have now. A restore also restores this value.
COUNTS = """
import json, os, pathlib, sys, time, torch
import gradpool.torch as hvd
torch.set_num_threads(1)
folder, page = pathlib.Path(sys.argv[1]), {'__name__': '__main__'}
def say(**line):
    with open(folder / f'{os.getpid()}.lines', 'a') as log:
        log.write(json.dumps(line) + '\\n')
class State(hvd.elastic.TorchState):
    def __init__(self, *arguments, **values):
        page['epochs'] = 1000000
        super().__init__(*arguments, counts=torch.zeros(1200), **values)
    def restore(self):
        say(restores=True)
        super().restore()
class Sampler(hvd.elastic.ElasticSampler):
    def __iter__(self):
        self.listed = list(super().__iter__())
        return iter(self.listed)
    def record_batch(self, number, size):
        used = torch.zeros(1200)
        used[self.listed[12 * number:12 * number + size]] += 1
        page['state'].counts += hvd.allreduce(used, op=hvd.Sum, name='used')
        super().record_batch(number, size)
        time.sleep(0.002)
        say(rank=hvd.rank(), size=hvd.size(), rate=page['optimizer'].param_groups[0]['lr'])
    def set_epoch(self, epoch):
        counts = page['state'].counts
        say(epoch=epoch, least=counts.min().item(), most=counts.max().item())
        super().set_epoch(epoch)
        end = folder / 'end'
        if hvd.rank() == 0 and (folder / 'stop').exists() and not end.exists():
            (folder / 'new').write_text(str(epoch + 2))
            (folder / 'new').rename(end)
        if end.exists():
            page['epochs'] = int(end.read_text())
hvd.elastic.TorchState, hvd.elastic.ElasticSampler = State, Sampler
exec((folder / 'page.py').read_text(), page)
say(trained=True, bits=page['model'].weight.detach().numpy().tobytes().hex())
"""


def page_script():
    return PAGE.read_text(encoding='utf-8').split('```python\n')[1].split('```')[0]


class Changes(pools.Pools):
    test_a_run_grows_survives_kills_of_workers_and_pool_and_shrinks = None
    test_the_script_and_the_command_of_the_page_run_as_they_stand = None

    def lines_of(self, pid):
        text = (self.folder / f'{pid}.lines').read_text()
        return [json.loads(line) for line in text.splitlines(True) if line.endswith('\n')]

    def pids(self):
        return {int(path.stem) for path in self.folder.glob('*.lines')}

    def await_size(self, pool, size, but=()):
        """Waits until a world has `size` workers, none with a pid of `but`. Returns {rank: pid}."""
        found = {}

        def has_size():
            found.clear()
            for pid in self.pids() - set(but):
                sizes = [line for line in self.lines_of(pid) if 'size' in line][-1:]
                found.update((line['rank'], pid) for line in sizes if line['size'] == size)
            return len(found) == size
        until(lambda: has_size() or pool.child.poll() is not None, f'{size} workers train',
              TRAINS_S, pool)
        self.assertEqual(len(found), size, pool.tail())
        return dict(found)

    def test_the_script_of_the_page_trains_each_sample_once_while_workers_come_and_go(self):
        (self.folder / 'page.py').write_text(page_script())
        (self.folder / 'script.py').write_text(COUNTS)
        pool = self.pool('--workers', 1, '--workers-max', 3, '--leave-timeout', 600, '--preload',
                         'torch', sys.executable, self.folder / 'script.py', self.folder)
        first = self.await_size(pool, 1)
        self.resize(3)
        three = self.await_size(pool, 3)
        self.assertEqual(three[0], first[0])    # the survivor keeps its process, and has rank 0
        os.kill(three[0], signal.SIGKILL)
        again = self.await_size(pool, 3, but=[three[0]])
        self.assertIn(again[0], three.values())
        self.resize(2)
        two = self.await_size(pool, 2, but=[three[0]])
        (self.folder / 'stop').touch()
        self.assertEqual(pool.wait(TRAINS_S), 0)
        self.check(three[0], two.values())
        self.assertIn('the job has shrunk, and this worker has left it',
                      (self.folder / 'gradpool-digits/rank-2.log').read_text())
        self.assertRegex(''.join(path.read_text() for path in self.folder.glob(
            'gradpool-digits/rank-*.log')), r'trained with [0-9.e-]+\n')

    def check(self, killed, enders):
        """Checks that all workers have ended with one model, in which each epoch has each sample
        once."""
        bits = {line['bits'] for pid in enders for line in self.lines_of(pid) if 'bits' in line}
        self.assertEqual(len(bits), 1)
        restores = set()
        for pid in self.pids():
            for line in self.lines_of(pid):
                if 'epoch' in line:
                    self.assertEqual((line['least'], line['most']), (line['epoch'],) * 2)
                if 'size' in line:
                    self.assertAlmostEqual(line['rate'], 0.01 * line['size'])
                if 'restores' in line:
                    restores.add(pid)
        self.assertEqual(len(restores - {killed}), 2)   # a planned change restores nothing


# ---- refusals ----

def refusal(call, *arguments, **options):
    import gradpool
    try:
        call(*arguments, **options)
    except gradpool.GradpoolError as error:
        return str(error)
    return 'nothing was raised'


def rank_is_refused(rank, workers):
    """Makes calls that elastic.run refuses, in and behind a function. Returns their texts."""
    os.environ.update(GRADPOOL_RANK=str(rank), GRADPOOL_SIZE=str(workers), LOCAL_RANK=str(rank))
    import torch
    import gradpool
    import gradpool.torch as hvd
    hvd.init()
    told = [hvd.rank(), hvd.size(), hvd.local_rank()]
    model, texts = torch.nn.Linear(2, 1), {}
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters())
    sampler, apart = (hvd.elastic.ElasticSampler(range(8)) for _ in range(2))
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, values=[1])
    texts['outside'] = refusal(state.commit)
    texts['interrupt'] = str(hvd.elastic.HostsUpdatedInterrupt())

    @hvd.elastic.run
    def train(state):
        assert told == [hvd.rank(), hvd.size(), hvd.local_rank()]
        texts['inside'] = refusal(hvd.elastic.run(lambda state: None), state)
        texts['set'] = refusal(hvd.add_process_set, [0])
        other = torch.nn.Linear(2, 1)
        for name, options in {'backup': {'backup': 1}, 'codec': {
                'compression': gradpool.codecs.OneBit()}}.items():
            texts[name] = refusal(hvd.DistributedOptimizer, torch.optim.SGD(
                other.parameters(), 0.1), other.named_parameters(), **options)
        texts['values'] = texts['codec']
        texts['indices'] = refusal(sampler.record_indices, [1])
        apart.num_replicas = 7
        texts['apart'] = refusal(iter, apart)
        texts['part'] = refusal(setattr, state, 'sampler', 3)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        state.values.append(2)
        state.commit()
        model(torch.ones(1, 2)).sum().backward()
        state.values.append(3)
        state.restore()
        assert state.values == [1, 2] and model.weight.grad is None, state.values
        if rank == 1:
            sampler.record_batch(0, 1)
        texts['record'] = refusal(state.commit)
        hvd.allreduce(torch.ones(1), name='together')
    train(state)
    texts['after'] = refusal(train, state)
    hvd.shutdown()
    return texts


def rank_has_a_failing_function(rank, workers):
    """Returns texts of calls behind a function that has raised an error of its own."""
    os.environ.update(GRADPOOL_RANK=str(rank), GRADPOOL_SIZE=str(workers))
    import torch
    import gradpool.torch as hvd
    hvd.init()
    texts = {'number': refusal(hvd.local_rank)}

    @hvd.elastic.run
    def train(state):
        hvd.barrier()
        raise ValueError('of the script')
    try:
        train(hvd.elastic.ObjectState())
    except ValueError as error:
        texts['error'] = str(error)
    texts['again'] = refusal(train, hvd.elastic.ObjectState())
    texts['behind'] = refusal(hvd.allreduce, torch.ones(1))
    hvd.shutdown()
    return texts


def rank_has_a_fixed_job(rank, workers):
    """Runs a function without a launcher that changes the number of workers."""
    del os.environ['GRADPOOL_WORKERS_MAX']
    os.environ.update(GRADPOOL_RANK=str(rank), GRADPOOL_SIZE=str(workers))
    import gradpool.torch as hvd
    hvd.init()

    @hvd.elastic.run
    def train(state, kind):
        state.commit()
        state.value += 10
        if kind is not None:
            raise kind
        return state.value
    state = hvd.elastic.TorchState(value=hvd.rank())
    texts = [train(state, None), refusal(train, state, hvd.elastic.HostsUpdatedInterrupt()),
             refusal(train, state, hvd.PeerLost(104, 'a rank was lost'))]
    hvd.shutdown()
    return texts, state.value


def rank_fixes_the_number(rank, workers):
    os.environ.update(GRADPOOL_RANK=str(rank), GRADPOOL_SIZE=str(workers))
    import torch
    import gradpool.torch as hvd
    hvd.init()
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
    gradients = []
    for _ in range(2):      # the first step fixes the number
        optimizer.zero_grad()
        model(torch.full((1, 2), rank + 1.)).sum().backward()
        optimizer.step()
        gradients.append(model.weight.grad[0, 0].item())
    hvd.broadcast_parameters(model.state_dict(), 0)
    text = refusal(hvd.elastic.run(lambda state: None), hvd.elastic.ObjectState())
    hvd.shutdown()
    return gradients, text


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = harness.Service()
        cls.addClassCleanup(cls.service.end)

    def run_ranks(self, function):
        return ranks.run_ranks(function, 2, GRADPOOL_JOB=self.id().rsplit('.', 1)[-1],
                               GRADPOOL_ENDPOINT=self.service.endpoint, GRADPOOL_WORKERS_MAX='3')

    def test_calls_that_cannot_be_done_right_are_refused_with_words(self):
        for texts in self.run_ranks('rank_is_refused'):
            for name, words in {
                    'outside': 'commit() of a State outside of a function of elastic.run',
                    'inside': 'elastic.run inside of a function of elastic.run, or after one',
                    'set': 'add_process_set() in a job whose workers join and leave (elastic.run): '
                           'ranks change; leave the process set out',
                    'backup': 'a round that lacks ranks cannot be restored; leave backup out',
                    'codec': 'DistributedOptimizer(compression=) with a codec in a job whose ',
                    'values': 'values that are not sent yet would be lost',
                    'interrupt': 'workers join or leave; elastic.run calls the function again',
                    'indices': 'ElasticSampler.record_indices(): ',
                    'apart': 'ElasticSampler of rank ', 'part': "TorchState: 'sampler' was an obj",
                    'record': 'workers 0 and 1 have recorded different batches',
                    'after': 'elastic.run inside of a function of elastic.run, or after one',
                    }.items():
                self.assertIn(words, texts[name], name)

    def test_a_step_before_the_function_fixes_the_number_of_workers(self):
        for gradients, text in self.run_ranks('rank_fixes_the_number'):
            self.assertEqual(gradients, [1.5, 1.5])
            self.assertIn('so the number of workers is fixed. Make such calls in the', text)

    def test_an_error_of_the_function_ends_the_worker_s_part(self):
        for texts in self.run_ranks('rank_has_a_failing_function'):
            self.assertEqual(texts.pop('error'), 'of the script')
            for name, words in {
                    'number': 'local_rank() before the function of elastic.run, and the launcher',
                    'again': 'elastic.run after the end of another function of elastic.run',
                    'behind': 'a call that needs all workers, outside of the function of ',
                    }.items():
                self.assertIn(words, texts[name], name)

    def test_a_fixed_job_runs_the_function_and_fails_with_a_lost_rank(self):
        for (value, updated, lost), last in self.run_ranks('rank_has_a_fixed_job'):
            self.assertEqual(value, 10)     # the value of rank 0
            self.assertIn('HostsUpdatedInterrupt in a job with a fixed number of workers', updated)
            self.assertEqual(lost, 'a rank was lost')
            self.assertEqual(last, 20)      # the last commit


class Stub:
    """A job, a deal, a link and a client of rank 0 that do nothing."""
    rank, name, step = 0, 'stub', types.SimpleNamespace(number=8)

    def begin(self, _):
        return 2    # TRAINED

    def __getattr__(self, _):
        return lambda *_, **__: None


class Decisions(unittest.TestCase):
    """Steps of a meeting whose slots are given."""

    def setUp(self):
        from gradpool.torch.elastic import worlds
        self.module = worlds
        self.worlds = object.__new__(worlds.Worlds)
        self.worlds._members, self.worlds._number, self.worlds._same = (0, 2), 7, 0
        self.worlds._job = self.worlds._deal = self.worlds._link = self.worlds._client = Stub()

    def slots(self, **slots):
        """Returns {rank: Slot} from rank0='WORKS 7', with a mark for each of: holds, leaves."""
        found = {}
        for rank, text in slots.items():
            doing, world, *marks = text.split()
            record = int(next((mark for mark in marks if mark.isdecimal()), 0))
            found[int(rank[4:])] = self.module.Slot(
                getattr(self.module, doing), int(world), 2, 'holds' in marks, 'leaves' in marks,
                record)
        return found

    def check(self, **slots):
        self.worlds._step = lambda *_: self.slots(**slots)
        return self.worlds.check(0)

    def test_a_commit_sees_who_joins_leaves_and_is_lost(self):
        lost = self.raises(OSError, 'lost worker(s) 2 of the world')
        self.assertFalse(self.check(rank0='WORKS 7', rank2='WORKS 7'))
        self.assertTrue(self.check(rank0='WORKS 7', rank1='MEETS 0', rank2='WORKS 7'))
        self.assertTrue(self.check(rank0='WORKS 7', rank2='WORKS 7 leaves'))
        self.assertFalse(self.check(rank0='WORKS 7', rank1='MEETS 0 leaves', rank2='WORKS 7'))
        for slots in ({'rank0': 'WORKS 7'}, {'rank0': 'WORKS 7', 'rank2': 'MEETS 0'},
                      {'rank0': 'WORKS 7', 'rank2': 'MEETS 7'}):
            with lost():
                self.check(**slots)

    def raises(self, kind, words):
        return lambda: ranks.expects(self, kind, words)

    def test_workers_that_are_apart_are_refused(self):
        with self.raises(ValueError, 'workers 0 and 2 have recorded different batches in their')():
            self.check(rank0='WORKS 7 1', rank2='WORKS 7 2')
        with self.raises(ValueError, 'worker(s) 2 returned from the function of elastic.run')():
            self.check(rank0='WORKS 7', rank2='ENDS 7')

    def test_a_world_needs_a_worker_with_the_state_which_has_rank_0(self):
        opened = []
        self.worlds._open = lambda number: opened.append(self.worlds._members) or True
        for slots, members in (
                ({'rank0': 'MEETS 0', 'rank1': 'WORKS 7 holds', 'rank2': 'MEETS 0 holds'}, None),
                ({'rank0': 'MEETS 0 leaves holds', 'rank1': 'MEETS 0 holds'}, None),
                ({'rank0': 'MEETS 0', 'rank1': 'MEETS 0 holds', 'rank2': 'MEETS 0 holds leaves'},
                 (1, 0))):
            self.assertEqual(self.worlds._is_met(self.slots(**slots)), members is not None)
            self.assertEqual(opened[-1:], [members] if members else [])
        with self.raises(OSError, 'all workers with the state of the training were lost; start')():
            self.worlds._is_met(self.slots(rank0='MEETS 0'))

    def test_a_worker_that_comes_at_the_end_ends_well(self):
        self.worlds._timeout_ms, told = 0, io.StringIO()
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(told):
            self.worlds._is_met(self.slots(rank0='MEETS 0', rank1='ENDS 7', rank2='ENDS 7'))
        self.assertEqual(ended.exception.code, 0)
        self.assertIn('the training had ended before this worker got its state', told.getvalue())

    def test_a_loss_at_the_end_is_a_loss_to_all(self):
        told = self.slots(rank0='MEETS 0 holds', rank2='ENDS 7 holds')     # rank 0 restores
        self.assertFalse(self.worlds._is_met(told))
        self.worlds._step = lambda *_: told
        with self.raises(OSError, 'lost worker(s) 0 of the world')():
            self.worlds.end()

    def test_a_worker_that_cannot_join_a_world_meets_again_with_all_others(self):
        steps = []
        self.worlds._place = None
        self.worlds._step = lambda doing: steps.append(doing) or {}
        for code in (errno.ESTALE, errno.ECONNRESET):
            with unittest.mock.patch.object(self.module._door, 'Door', side_effect=(
                    self.module.GradpoolError(code, 'ends'))), contextlib.redirect_stderr(
                        io.StringIO()):
                self.assertFalse(self.worlds._open(9))
        self.assertEqual(steps, [self.module.MEETS] * 2)

    def test_worlds_that_never_commit_end_with_the_error(self):
        self.worlds._same = 3
        with self.raises(OSError, 'of a lane')():
            self.worlds.renew(OSError(5, 'of a lane'))

    def test_an_optimizer_of_an_earlier_call_is_refused(self):
        from gradpool.torch._optimizer.optimizer import Unbound
        with self.raises(ValueError, 'made in an earlier call of the function of ')():
            Unbound(1).synchronize([])


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
