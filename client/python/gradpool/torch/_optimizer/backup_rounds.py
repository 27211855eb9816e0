"""Rounds of an optimizer with backup workers."""
from ..._model.backup_rounds import BackupRounds
from ...errors import overdue
from .._operations.objects import gather_objects
from ..process_sets import global_process_set


class Limit:
    """Deadline of the end of a round."""

    def __init__(self, door):
        self.ms, self._seconds = int(door.timeout_s * 1e3), door.timeout_s

    def told(self, timeout):
        return overdue(timeout, self._seconds, 'GRADPOOL_TIMEOUT_MS')


class Rounds(BackupRounds):
    """BackupRounds whose ranks compare their parameters over the door's own job."""
    _needed = 'a loss of the parameters of the optimizer'

    def _texts_of_all(self, text):
        return gather_objects(text, 'optimizer.settle()', global_process_set)
