"""For test_messages: Python calls that must be refused (in each integration), and a rank that
joins and does nothing more."""
import subprocess
import sys

import gradpool
import numpy

_IDLE = ("import gradpool, signal; job = gradpool.connect().join('{}', {}, {}); "
         "print('has joined', flush=True); signal.pause()")


def idle_rank(job, rank, workers):
    """Returns a process that has joined the job, and that declares nothing."""
    process = subprocess.Popen([sys.executable, '-c', _IDLE.format(job, rank, workers)],
                               stdout=subprocess.PIPE, text=True)
    if 'has joined' not in process.stdout.readline():
        raise AssertionError(f'rank {rank} of job {job} ended with {process.wait()}')
    return process


def wait_alone(request):
    """Waits for a rank that has not joined. Raises an error that says so. If a lane or the
    coordinator answers late, the error lacks these words, so the function waits again."""
    for _ in range(10):
        try:
            request.wait(100)
        except gradpool.Timeout as error:
            if 'has not joined' in str(error):
                raise
    request.wait(100)


def of_codecs():
    from gradpool import codecs
    return (lambda: codecs.TopK(ratio=2), lambda: codecs.Dithering(bits=3),
            lambda: codecs.OneBit(min_bytes='x'), lambda: codecs.Feedback('x'),
            lambda: codecs.flat(numpy.zeros(2)),
            lambda: codecs.flat(numpy.zeros((4, 4), numpy.float32)[:, ::2]))


def of_a_door(torch, hvd):
    ones, number = torch.ones(4), torch.tensor(1.0)
    return (lambda: hvd.allreduce(ones, op='x'), lambda: hvd.allreduce(ones, op=hvd.Adasum),
            lambda: hvd.allreduce(ones, True, op=hvd.Sum), lambda: hvd.allreduce('x'),
            lambda: hvd.grouped_allreduce([]), lambda: hvd.allgather(number),
            lambda: hvd.reducescatter(number), lambda: hvd.broadcast(ones, 7),
            lambda: hvd.alltoall(ones, splits=torch.tensor([9])),
            lambda: hvd.sparse_allreduce_async(ones), lambda: hvd.synchronize('x'),
            lambda: hvd.allreduce(ones, process_set=hvd.ProcessSet([5])),
            lambda: hvd.add_process_set([7]), lambda: hvd.broadcast_parameters('x', 0),
            lambda: hvd.broadcast_parameters({'a': 'x'}, 0),
            lambda: hvd.broadcast_parameters({'a': ones}, 7),
            lambda: hvd.allreduce_(ones[:1].expand(4)),
            lambda: hvd.SyncBatchNorm(4)(torch.ones(1, 4)),
            lambda: hvd.SyncBatchNorm(4)(torch.ones(4)))


def of_an_optimizer(torch, hvd):
    model = torch.nn.Linear(2, 2)

    def make(*arguments, **named):
        return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1), *arguments,
                                        **named)
    names = list(model.named_parameters())
    return (lambda: hvd.DistributedOptimizer('x'), lambda: make(['x']),
            lambda: make(names[:1] * 2), lambda: make(names[:1]),
            lambda: make(backward_passes_per_step=0),
            lambda: make(gradient_predivide_factor=2, op=hvd.Sum))
