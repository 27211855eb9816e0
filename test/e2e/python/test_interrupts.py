"""Tests Ctrl-C in backward() of a DistributedDataParallel model. KeyboardInterrupt is raised after
a whole step; while another rank is missing, it is raised before the step."""
import os
import signal
import threading
import time

import ranks
import test_ddp
from test_ddp import attach, Rank, setUpModule, tearDownModule     # noqa: found by name

# The deadline is longer than a test may take. A Ctrl-C must not wait for the deadline.
DEADLINE_MS = 900_000


def begin(rank, workers):
    """Returns a Rank that handles Ctrl-C, even if a shell started the tests with `&`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import gradpool.distributed     # noqa: registers the backend
    return Rank(rank, workers)


def interrupted_in(owner, name):
    """Sends a Ctrl-C at the start of the next call of this method."""
    method = getattr(owner, name)

    def interrupted(*arguments):
        setattr(owner, name, method)
        signal.raise_signal(signal.SIGINT)
        return method(*arguments)
    setattr(owner, name, interrupted)


def what_is_raised(call, *arguments):
    try:
        call(*arguments)
    except BaseException as error:
        return f'{type(error).__name__}: {error}'
    return 'nothing'


def own_class():
    """Returns the class of the backend's process groups, as a script would create it."""
    import gradpool.distributed
    return gradpool.distributed.ProcessGroup


def rank_interrupts_a_hook(rank, workers):
    """Returns [error of backward(), digest after it, digest a step later, the handler
    afterwards]."""
    import gradpool.ddp
    trainer = begin(rank, workers)
    how = os.environ['TEST_HOW']
    if how != 'backend':
        attach(trainer, optimizer=trainer.optimizer if how == 'steps' else None)
    trainer.step(trainer.batch())
    owner = (own_class(), '_reduce') if how == 'backend' else (gradpool.ddp.Attachment, 'push')
    if rank == 0:
        interrupted_in(*owner)
    loss = trainer.model(trainer.batch()).square().mean()
    raised = what_is_raised(loss.backward)
    trainer.optimizer.step()
    found = [trainer.digest()]
    trainer.optimizer.zero_grad()
    trainer.step(trainer.batch())
    return [raised, *found, trainer.digest(),
            signal.getsignal(signal.SIGINT) is signal.default_int_handler]


def rank_has_a_handler(rank, workers):
    """The script has its own handler, which ends the epoch. This handler must be called once. No
    exception is raised."""
    import gradpool.ddp
    seen, trainer = [], begin(rank, workers)
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    attach(trainer)
    if rank == 0:
        interrupted_in(gradpool.ddp.Attachment, 'push')
    raised = what_is_raised(trainer.step, trainer.batch())
    return [raised, len(seen), trainer.digest()]


def press_when_waiting():
    """Sends Ctrl-C once the main thread waits for the other rank."""
    import gradpool.ddp
    waiting, is_idle = threading.Event(), gradpool.ddp._Push.is_over

    def seen(push):
        if threading.current_thread() is threading.main_thread():
            waiting.set()
        return is_idle(push)
    gradpool.ddp._Push.is_over = seen

    def press():
        waiting.wait()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press, daemon=True).start()


def rank_waits_for_one_that_does_not_come(rank, workers):
    trainer = begin(rank, workers)
    attach(trainer, timeout_ms=DEADLINE_MS)
    for _ in range(2):      # in the second step the ranks agree on new buckets
        trainer.step(trainer.batch())
    before, found = trainer.digest(), None
    if rank == 0:
        press_when_waiting()
        found = [what_is_raised(trainer.step, trainer.batch())]
        found += [trainer.digest() == before, what_is_raised(trainer.model, trainer.batch())]
    trainer.torch.distributed.barrier()
    return found


def rank_presses_twice(rank, workers):
    """Presses Ctrl-C twice. The second Ctrl-C must end the hook at once, without a wait for the
    deadline."""
    import gradpool.ddp
    trainer = begin(rank, workers)
    attach(trainer)
    push = gradpool.ddp.Attachment.push

    def hangs(*arguments):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        time.sleep(DEADLINE_MS / 1e3)
    gradpool.ddp.Attachment.push = hangs
    loss = trainer.model(trainer.batch()).square().mean()
    raised = what_is_raised(loss.backward)
    gradpool.ddp.Attachment.push = push
    return raised


class Interrupts(test_ddp.Case):
    def check_whole_step(self, how, **environment):
        found = self.run_ranks('rank_interrupts_a_hook', TEST_HOW=how, **environment)
        self.assertEqual([raised for raised, *_ in found], ['KeyboardInterrupt: ', 'nothing'])
        for digests in zip(*[rest for _, *rest in found]):
            self.all_equal(digests)
        self.assertTrue(found[0][-1], 'the handler of the script is not back')

    def test_the_hook_completes_the_step_before_keyboard_interrupt_is_raised(self):
        self.check_whole_step('means')

    def test_the_steps_of_lanes_are_whole_when_keyboard_interrupt_is_raised(self):
        self.check_whole_step('steps')

    def test_ctrl_c_raises_keyboard_interrupt_with_the_backend_too(self):
        self.check_whole_step('backend', TEST_BACKEND='gradpool')

    def test_a_handler_that_raises_nothing_is_called_once_and_the_step_goes_on(self):
        (raised, calls, digest), other = self.run_ranks('rank_has_a_handler')
        self.assertEqual((raised, calls), ('nothing', 1))
        self.assertEqual([digest, other[2]], [digest, digest])

    def test_an_interrupt_ends_the_wait_for_a_missing_rank(self):
        raised, is_unchanged, later = self.run_ranks('rank_waits_for_one_that_does_not_come')[0]
        self.assertEqual(raised, 'KeyboardInterrupt: ')
        self.assertTrue(is_unchanged)
        self.assertIn('KeyboardInterrupt in backward()', later)
        self.assertIn(' in backward(), before all ranks had sent their gradients; end the script, '
                      'or attach() a new DistributedDataParallel', later)

    def test_a_second_ctrl_c_is_not_postponed(self):
        self.assertIn('KeyboardInterrupt', self.run_ranks('rank_presses_twice', 1)[0])


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
