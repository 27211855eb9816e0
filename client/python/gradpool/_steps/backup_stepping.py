"""Optimizer steps that lanes do in a job with backup workers. Ranks are in different rounds at the
same time. So parameters, moments and settings may be changed only by calls that attach() and
batches() make on every rank in the same order. The job has no tensors without an update rule:
attach() exchanges step counts over the model's process group."""
import torch.distributed

from ..errors import mismatch
from .stepping import settings_of, Stepping


class BackupStepping(Stepping):
    """An optimizer whose steps are done by lanes, with the gradients of some ranks.

    group       the model's process group
    is_in_body  whether the script is in the body of a loop over batches()"""

    def __init__(self, optimizer, module, parameters, frozen, group):
        super().__init__(optimizer, module, parameters, frozen)
        self._group, self.is_in_body, self._noted = group, False, None
        self._goes_on, self._places = False, {}     # id of a parameter -> address of its values

    def begin_body(self):
        self.is_in_body = True

    def end_body(self):
        self.is_in_body = False

    def take_next(self, _):
        """Returns False. No mean has to be fetched, because lanes also make the steps of missed
        rounds, and this rank has the newest parameters."""
        return False

    def note_settings(self):
        """Stores the optimizer's settings. Called between two rounds, where all ranks have the same
        settings."""
        self._noted = self._all_settings()

    def _all_settings(self):
        return [settings_of(group) for group in self._optimizer.param_groups]

    def end_step(self):
        """Calls step() of the optimizer for the last backward(), unless the script has called
        step(), or the round of that backward() is still open."""
        if self._goes_on and self.has_step_left_out():
            self._end_step()
        elif self.has_step_left_out():
            self._optimizer.step()

    def go_on(self, goes_on):
        """Called at the end of backward(). `goes_on`: lanes have made no step yet, and another
        gradient on the same parameters is wanted."""
        self._goes_on = goes_on
        if goes_on:
            self._written.note(None, list(self._parameters.values()))

    def _end_step(self):
        if not self._goes_on:
            super()._end_step()
            return
        self._pushed.clear()
        if not self._untouched.are_so():
            raise mismatch('gradients were changed after backward(), as by clip_grad_norm_() or a '
                           'GradScaler, but lanes step with the former gradients. Leave the '
                           'change out, or attach without the optimizer')

    def start(self, job, bucket):
        if not self.is_in_body:
            raise mismatch(f'{job}: backward() outside of a loop over batches(), and only that '
                           'loop ends after the same round on every rank. Write "for batch in '
                           'attachment.batches(loader, rounds=...):"')
        self._places.update((id(one), one.data_ptr()) for one in bucket.parameters())
        return super().start(job, bucket)

    def check_places(self):
        """Raises Mismatch if the script has written parameters, or given them other memory, since
        the last backward(): lanes would write to the former memory."""
        moved = [name for name, one in self._parameters.items()
                 if self._places.get(id(one)) != one.data_ptr()]
        if moved:
            raise mismatch(f"parameter '{moved[0]}' has other memory than in the last backward(), "
                           'and lanes write to that memory. Change a model before attach() only')
        if self._written.is_so():
            self._take_changes(None)

    def take_over(self):
        """Stores the state of the parameters, which lanes have written without a backward()."""
        self._written.forget()
        self._written.note(None, list(self._parameters.values()))

    def check_settings(self):
        """Raises Mismatch if the script has changed settings since note_settings()."""
        if self._all_settings() != self._noted:
            raise mismatch("the optimizer's settings were changed in a loop over batches(), where "
                           'a rank that misses rounds makes fewer iterations. Give the scheduler '
                           'as attach(step=scheduler.step), or change settings between two loops')

    def _begin_step(self, bucket):
        self.check_settings()
        super()._begin_step(bucket)

    def _take_changes(self, _):
        raise mismatch('parameters or moments were changed after attach() of a model with backup '
                       'workers, whose ranks are in different rounds. Load them before attach(), '
                       'and leave other writes out')

    def _sharing(self, *_):
        ranks = torch.distributed.get_process_group_ranks(self._group)

        def share(counts):
            given = [counts.tolist()]
            torch.distributed.broadcast_object_list(given, ranks[0], self._group)
            counts.copy_(torch.tensor(given[0], dtype=counts.dtype))
        return share

    def digest(self):
        """Returns a checksum of the parameters, as text."""
        found = self._written.sum_of(list(self._parameters.values()))
        return str(found.tolist()) if isinstance(found, torch.Tensor) else f'{found:016x}'
