"""Tests the words of errors of gradpool.ddp.attach(backup=), and of calls after it. One rank,
with a job for each error."""
import os
import types

import ranks
import test_ddp
from test_ddp import Rank, setUpModule, tearDownModule  # noqa: F401 (found by name)


class Model:
    """A model of one rank, and the calls of a script."""

    def __init__(self, torch, net=None, **options):
        self.torch, self.net = torch, torch.nn.Linear(4, 2) if net is None else net
        self.model = torch.nn.parallel.DistributedDataParallel(self.net, **options)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 0.1)

    def attach(self, **options):
        import gradpool.ddp
        given = {'optimizer': self.optimizer, 'backup': 'static:1', **options}
        self.attachment = gradpool.ddp.attach(self.model, **given)
        return self.attachment

    def attach_means(self, **options):
        """Attaches the model without an optimizer, with a function that makes the steps."""
        return self.attach(**{'optimizer': None, 'step': self.optimizer.step, **options})

    def backward(self):
        self.optimizer.zero_grad()
        self.model(self.torch.ones(3, 4)).sum().backward()

    def train(self, change=lambda: None):
        for _ in self.attachment.batches('ab', 2):
            change()
            self.backward()

    def raise_rate(self):
        self.optimizer.param_groups[0]['lr'] *= 2


def joined(of, **options):
    import gradpool
    client = gradpool.connect()
    of.closing(client.close)
    return client.join(f'joined {of.number}', 0, 1, durability='none', **options)


def backup(*arguments, **options):
    import gradpool
    return gradpool.Backup(*arguments, **options)


def normalized(torch, kind):
    return torch.nn.Sequential(torch.nn.Linear(4, 2), kind(2))


def normalized_by_all(of):
    from gradpool.torch import SyncBatchNorm
    of.another(normalized(of.torch, SyncBatchNorm), broadcast_buffers=False).attach()


def compressed(of):
    from gradpool import codecs
    of.attach(compression=codecs.OneBit())


def attached_to_a_joined_job_twice(of):
    job = joined(of, backup='static:1')
    of.attach(job=job, backup=None)
    of.another().attach(job=job, backup=None)


def two_models(of):
    of.attach()
    of.another().attach()


def shared_with_means(of):
    of.attach()
    of.another().attach(backup=None, optimizer=None)


def outside_of_the_loop(of):
    of.attach()
    of.backward()


def changed_parameter(of):
    of.attach()
    of.train()
    of.net.weight.data.zero_()
    of.train()


def changed_rate(of):
    of.attach()
    of.train(of.raise_rate)


def rate_changed_behind(of):
    of.attach()
    for _ in of.attachment.batches('ab', 1):
        of.backward()
        of.raise_rate()


def clipped(of):
    def clip():
        of.torch.nn.utils.clip_grad_norm_(of.net.parameters(), 0.01)
    of.attach()
    for _ in of.attachment.batches('ab', 2):
        of.backward()
        clip()


def joining(of):
    of.attach()
    with of.torch.distributed.algorithms.join.Join([of.model]):
        pass


def stepped_in_the_body(of):
    of.attach_means()
    of.train()
    for _ in of.attachment.batches('ab', 1):
        of.backward()
        of.optimizer.step()


def clipped_in_the_body(of):
    of.attach_means()
    for _ in of.attachment.batches('ab', 1):
        of.backward()
        of.torch.nn.utils.clip_grad_norm_(of.net.parameters(), 0.01)


def backward_twice(of):
    of.attach_means()
    for _ in of.attachment.batches('ab', 1):
        of.backward()
        of.backward()


def means_outside_of_the_loop(of):
    of.attach_means()
    of.backward()


def with_sparse_gradients(of):
    nn = of.torch.nn
    of.another(nn.Sequential(nn.Embedding(4, 2, sparse=True), nn.Linear(2, 2))).attach_means()


def with_gaps(of):
    net = of.torch.nn.Linear(4, 2)
    net.weight.data = of.torch.ones(4, 2).t()
    of.another(net).attach_means()


def joining_means(of):
    of.attach_means()
    with of.torch.distributed.algorithms.join.Join([of.model]):
        pass


def snapshot(of):
    of.attach()
    of.train()
    of.attachment.job.snapshot(os.environ['TEST_STORE'] + '.snapshot')


def moments(of):
    of.attach()
    assert of.optimizer.state_dict()['state'] == {}
    of.train()
    of.optimizer.state_dict()


def moments_in_another_job(of):
    of.attach()
    of.train()
    of.another(of.net).attach(job='other', backup=None, optimizer=of.optimizer)


def interrupted(of, **options):
    of.attach(backup=backup('static:1', stragglers='interrupt', **options))


def nothing_to_leave(of):
    interrupted(of)
    of.train()


def work_in_work(of):
    interrupted(of)
    for _ in of.attachment.batches('ab', 2):
        with of.attachment.work():
            with of.attachment.work():
                of.backward()


def work_twice(of):
    interrupted(of)
    for _ in of.attachment.batches('ab', 2):
        for _ in range(2):
            with of.attachment.work() as work:
                of.backward()
            assert not work.is_left


def work_outside(of):
    interrupted(of)
    with of.attachment.work():
        of.backward()


def error_of_the_script(of):
    interrupted(of)
    for _ in of.attachment.batches('ab', 2):
        with of.attachment.work():
            raise ValueError('an error of the script leaves work()')


def work_that_waits(of):
    """Stragglers that wait may have work(), which does nothing."""
    of.attach()
    for _ in of.attachment.batches('ab', 2):
        with of.attachment.work():
            of.backward()
    raise ValueError(f'{of.attachment.round} rounds, {of.attachment.left} left')


def moved_parameter(of):
    of.attach()
    of.train()
    of.net.weight.data = of.net.weight.data.clone()
    of.attachment._way.check_places()   # before lanes write parameters without a backward()


def work_without_backup(of):
    of.attach(backup=None).work()


def loop_without_backup(of):
    of.attach(backup=None).batches('ab', 2)


def settled_without_backup(of):
    of.attach(backup=None).settle()


def on_a_gpu(of):
    from gradpool._model.backup_rounds import check_places
    check_places({'weight': types.SimpleNamespace(is_cpu=False, device='cuda:0')})


REFUSALS = {
    'a number for auto': (lambda of: of.attach(backup='auto:3'), "backup rule 'auto:3': give the "
                          'number of gradients to static and adasync'),
    'no number': (lambda of: of.attach(backup='adasync'), "backup rule 'adasync': give the number"),
    'boolean': (lambda of: of.attach(backup=True), 'backup rule True, expected static:K'),
    'too many': (lambda of: of.attach(backup=2), 'backup.k is 2 for 1 workers'),
    'eight gradients': (lambda of: of.attach(backup=backup('static:1', gradients=8)),
                        'backup.gradients is 8; set gradients to 0 to 7'),
    'gradients of a rule that has one': (
        lambda of: of.attach(backup=backup('dbw', gradients=2)),
        "backup.gradients is 2 with rule 'dbw'; use rule 'static' or 'auto'"),
    'absence': (lambda of: of.attach(backup=backup('static:1', absence='long')),
                "absence is 'long', expected a whole number"),
    'no optimizer': (lambda of: of.attach(optimizer=None), 'attach(backup=) without optimizer= and '
                     'step=: neither lanes nor the script would step. Give the optimizer as '
                     'attach(optimizer=), or a function that steps as attach(step=)'),
    'means of dbw': (
        lambda of: of.attach_means(backup=backup('dbw')), "attach(backup='dbw') without "
        'optimizer=: the rule needs the learning rate of each step, which only lanes that step '
        'have. Give optimizer=, or another rule'),
    'lag': (lambda of: of.attach(backup=backup('static:1', lag=3)), 'attach(backup=) with lag=3 '
            'and optimizer=: lanes step, so a rank may be behind by any number of rounds. Leave '
            'lag out, or give'),
    'longest lag': (lambda of: of.attach_means(backup=backup('static:1', lag=17)),
                    'backup.lag is 17; set lag to 0 to 16'),
    'kind of stragglers': (lambda of: backup('static:1', stragglers='stop'),
                           "stragglers is 'stop', expected 'wait' or 'interrupt'"),
    'nothing to leave': (nothing_to_leave, "stragglers='interrupt', but the body of the loop over "
                         'batches() has nothing that a rank can leave. Put forward() and '
                         'backward() into "with attachment.work():", or leave stragglers out'),
    'work in work': (work_in_work, 'attachment.work() within attachment.work(): a rank would leave '
                     'the inner statement alone. Use one "with attachment.work():" in each body'),
    'work twice': (work_twice, 'attachment.work() a second time in one body: a rank that has left '
                   'the first statement would begin the second. Put all passes of the body'),
    'work outside': (work_outside, 'attachment.work() outside of a loop over batches(), which '
                     'knows the round of the work. Write "for batch in attachment.batches('),
    'error in work': (error_of_the_script, 'an error of the script leaves work()'),
    'work that waits': (work_that_waits, '2 rounds, 0 left'),
    'moved parameter': (moved_parameter, "parameter 'weight' has other memory than in the last "
                        'backward(), and lanes write to that memory. Change a model before '
                        'attach() only'),
    'work without backup': (work_without_backup, 'work() of a model attached without backup '
                            'workers'),
    'step in the body': (stepped_in_the_body, 'the body of a loop over batches() has changed '
                         'parameters, but a rank that misses rounds runs the body less often. '
                         'Remove optimizer.step() and other'),
    'clipped in the body': (clipped_in_the_body, 'has changed .grad after backward(), but a '
                            'rank that misses rounds gets their means outside of the body. Clip '
                            'and scale in the function step= of attach()'),
    'two backward()': (backward_twice, 'backward() a second time in one body of a loop over '
                       'batches(), which steps behind the body: put forward() and backward() of '
                       'all passes but the last under model.no_sync()'),
    'means outside': (means_outside_of_the_loop, 'backward() outside of a loop over batches()'),
    'means with sparse gradients': (with_sparse_gradients, "parameter '0.weight' has sparse "
                                    'gradients, and jobs with backup workers take dense ones: set '
                                    'sparse=False, or leave backup out'),
    'means with gaps': (with_gaps, "parameter 'weight' is not contiguous; with backup workers "
                        'leave its memory format as it is, or leave backup out'),
    'means and Join': (joining_means, 'Join with a model of attach(backup=): a rank that has left '
                       'the loop would end no round. Write the loop over attachment.batches()'),
    'compression': (compressed, 'attach(backup=) with compression: a rank cannot send the rest of '
                    'a dropped gradient. Leave compression out, or backup'),
    'step alone': (lambda of: of.attach(backup=None, step=print), 'attach(step=) without backup=: '
                   'the script writes its own loop, and calls the function there'),
    'no function': (lambda of: of.attach(step=3), 'attach(step=3): expected a function without '
                    'arguments, such as scheduler.step'),
    'buffers': (lambda of: of.another(normalized(of.torch, of.torch.nn.BatchNorm1d)).attach(),
                "rank 0 sends '1.running_mean' in each forward(), but ranks are in different "
                'rounds. Make the DistributedDataParallel with broadcast_buffers=False'),
    'unused': (lambda of: of.another(find_unused_parameters=True).attach(), 'a model with '
               'find_unused_parameters=True, where backward() needs all ranks. Make the'),
    'static graph': (lambda of: of.another(static_graph=True).attach(), 'static_graph=True'),
    'SyncBatchNorm': (normalized_by_all, "'1' is a SyncBatchNorm, whose forward() needs all ranks. "
                      'Use BatchNorm, and broadcast_buffers=False'),
    'a job without': (lambda of: of.attach(job=joined(of)), ' was joined without backup workers. '
                      'Join it with join(backup=..., durability="none"), or give the name'),
    'another rule': (lambda of: of.attach(job=joined(of, backup='static:1'),
                                          backup=backup('static:1', least=1)),
                     "attach(backup=Backup('static:1', least=1, ",
                     ", rank 0 was joined with Backup('static:1', least=None, ",
                     ', again=False). Leave backup out of attach()'),
    'a used job': (attached_to_a_joined_job_twice, ' already, and a round ends for all tensors at '
                   'once. Join another job for this model'),
    'two models': (two_models, ' is used by other code of this process, and a job with backup '
                   'workers has one model only. Give attach() the name of another job'),
    'shared': (shared_with_means, ' is used by other code of this process'),
    'outside': (outside_of_the_loop, 'backward() outside of a loop over batches(), and only that '
                'loop ends after the same round on every rank. Write "for batch in'),
    'written': (changed_parameter, 'parameters or moments were changed after attach() of a model '
                'with backup workers, whose ranks are in different rounds. Load them before'),
    'rate in the loop': (changed_rate, "the optimizer's settings were changed in a loop over "
                         'batches(), where a rank that misses rounds makes fewer iterations. Give'),
    'rate behind backward': (rate_changed_behind, "the optimizer's settings were changed in a loop "
                             'over batches(), where a rank that misses rounds makes'),
    'clipped': (clipped, 'gradients were changed between backward() and step()'),
    'Join': (joining, 'Join with a model of attach(optimizer=)'),
    'snapshot': (snapshot, 'broadcasts, saves and restores before its first round only'),
    'moments': (moments, ' has backup workers, and lanes do not send the moments of such a job. '
                'Save the state_dict() of the model alone'),
    'moments elsewhere': (moments_in_another_job, ' has backup workers, and lanes do not send'),
    'loop': (loop_without_backup, 'batches() of a model attached without backup workers: every '
             'round has all ranks. Iterate over the loader, or attach(backup=...)'),
    'settle': (settled_without_backup, 'settle() of a model attached without backup workers'),
    'GPU': (on_a_gpu, "parameter 'weight' is on cuda:0, and the end of a round does not await the "
            'copies of a GPU yet. Train on the CPU, or leave backup out')}


def text_of(call, of):
    try:
        call(of)
    except Exception as error:
        return str(error)
    finally:
        for end in of.ends:
            end()
    return 'no error'


def rank_is_refused(rank, workers):
    trainer, found = Rank(rank, workers), {}
    for number, (name, (call, *_)) in enumerate(REFUSALS.items()):
        of, ends = Model(trainer.torch), []
        os.environ['GRADPOOL_JOB'] = f'refused {number}'
        of.number, of.ends, of.closing = number, ends, ends.append
        of.another = lambda net=None, **options: Model(trainer.torch, net, **options)
        found[name] = text_of(call, of)
    return found


class BackupRefusals(test_ddp.Case):
    def test_calls_that_backup_workers_cannot_serve_are_refused(self):
        found, = self.run_ranks('rank_is_refused', 1)
        for name, (_, *words) in REFUSALS.items():
            with self.subTest(name):
                for word in words:
                    self.assertIn(word, found[name])


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
