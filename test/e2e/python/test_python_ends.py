"""Tests the end of a script. Its status must be the script's own, even if threads of the package
are still running. The other ranks must receive the message that the rank has left."""
import multiprocessing
import os
import re
import sys

import harness
import python_case
import ranks
import gradpool
from python_case import Case, full, setUpModule, tearDownModule   # noqa: found by name

TIMEOUT_S = 60

# A thread of the package runs torch code for a long time without the interpreter's lock, and the
# script ends during this time.
BUSY = '''
import threading, torch
from gradpool._process.completion import complete
begun = threading.Event()
class Item:
    def waits_for(self):
        return None
    def is_over(self):
        begun.set()
        for _ in range(20):
            torch.ones(200, 200).mm(torch.ones(200, 200))
        return False
torch.set_num_threads(1)
complete(Item())
begun.wait()
'''

# backward() fails in the middle of a graph. Its parameters have gradients in shared memory.
FAILING = '''
import torch
import gradpool.torch as hvd
hvd.init()
model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01),
                                     model.named_parameters())
def run():
    model(torch.ones(4, 300)).square().mean().backward()
run()
optimizer.step()
run()
run()       # before step()
'''


def take_part(rank, workers):
    """Runs in a process of multiprocessing. No code calls a leave function."""
    import gradpool.torch as hvd
    import torch
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers), GRADPOOL_JOB='goodbyes')
    hvd.init()
    hvd.allreduce(torch.ones(4), name='t')


class Ends(Case):
    def test_a_thread_in_torch_does_not_abort_a_script_that_ends(self):
        for _ in range(3):
            done = harness.run([sys.executable, '-c', BUSY], timeout=TIMEOUT_S,
                               capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_a_script_that_fails_in_backward_ends(self):
        done = harness.run([sys.executable, '-c', FAILING], timeout=TIMEOUT_S, text=True,
                           capture_output=True, env={**os.environ, 'GRADPOOL_JOB': 'failing'})
        self.assertEqual(done.returncode, 1)
        self.assertIn('backward() ran more than 1 times before step()', done.stderr)

    def test_no_lane_waits_for_a_rank_that_has_left(self):
        """Also tests a job in which the process that leaves has declared nothing to the service."""
        for leaves_first in False, True:
            with gradpool.connect() as client:
                one, other = [client.join(f'left-{leaves_first}', rank, 2) for rank in range(2)]
                tensor = None if leaves_first else one.declare('t', 100)
                request = tensor and one.push_pull(tensor, full(1))
                other.leave()
                request = request or one.push_pull(one.declare('t', 100), full(1))
                with self.raises(gradpool.PeerLost, "'t'", 'rank 1 has left'):
                    request.wait(TIMEOUT_S * 1000)

    def test_a_process_of_multiprocessing_leaves_its_job(self):
        fork = multiprocessing.get_context('fork')
        processes = [fork.Process(target=take_part, args=(rank, 2)) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            harness.until(lambda process=process: process.exitcode is not None, 'a rank ends')
            self.assertEqual(process.exitcode, 0)
        for rank in range(2):
            goodbye = re.compile(rf'rank {rank} of job goodbyes \(.*\) has left')
            harness.until(lambda: goodbye.search(python_case.service.serve.text()),
                          f'rank {rank} has left', process=python_case.service.serve)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
