"""Residuals of a codec as part of a checkpoint, with the same methods in ddp, torch and
compression_hook.

    torch.save({'model': ..., 'residuals': attachment.residuals.state_dict()}, f'step-7.{rank}')
    attachment.residuals.load_state_dict(torch.load(f'step-7.{rank}')['residuals'])"""
import torch

from ..errors import mismatch


class Residuals:
    """Residuals of a model: the unsent part of each gradient, and the number of rounds, which seeds
    random draws. Each rank has other residuals, so each rank saves and loads its own.

    feedback  Feedback of the codec; None: no codec, nothing to save
    elements  {name: elements} of all tensors that may have a residual
    is_busy   None, or a function that returns whether gradients are being sent"""

    def __init__(self, feedback, elements, rank, is_busy=None):
        self._feedback, self._elements, self._rank = feedback, elements, rank
        self._is_busy = is_busy

    def state_dict(self):
        """Returns a copy of all residuals, between two steps; empty without a codec."""
        self._check_idle()
        if self._feedback is None:
            return {}
        state = self._feedback.state_dict()
        residuals = {name: torch.from_numpy(one) for name, one in state['residuals'].items()}
        return {**state, 'residuals': residuals, 'rank': self._rank}

    def load_state_dict(self, state):
        """Replaces the residuals, on all ranks or on none. Raises Mismatch and changes nothing if
        the residuals belong to another rank, codec or model."""
        self._check_idle()
        if not isinstance(state, dict):
            raise mismatch(f'rank {self._rank}: residuals are a {type(state).__name__}, '
                           'expected what residuals.state_dict() has returned')
        if self._feedback is None:
            if state:
                raise mismatch(f"rank {self._rank}: residuals of {state.get('codec')}, but "
                               'this model has no codec: use that codec, or load no residuals')
            return
        if state.get('rank', self._rank) != self._rank:
            raise mismatch(f"rank {self._rank}: residuals of rank {state['rank']}, expected its "
                           'own: each rank saves its own, and loads what it has saved')
        self._feedback.load_state_dict({key: of for key, of in state.items() if key != 'rank'},
                                       self._elements)

    def _check_idle(self):
        if self._is_busy and self._is_busy():
            raise mismatch(f'rank {self._rank}: residuals between backward() and step(): gradients '
                           'are being sent; call the function after step()')
