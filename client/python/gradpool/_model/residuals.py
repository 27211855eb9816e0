"""Values that a codec carries over from round to round, as part of a checkpoint: the same at every
door.

    torch.save({'model': ..., 'residuals': attachment.residuals.state_dict()}, f'step-7.{rank}')
    attachment.residuals.load_state_dict(torch.load(f'step-7.{rank}')['residuals'])"""
import torch

from ..errors import mismatch


class Residuals:
    """A model's: what was not sent yet of each gradient, and how many rounds there were, from which
    draws come. Each rank has its own, so each rank saves and loads.

    feedback  the codec's Feedback; None: gradients travel whole, there is nothing to save
    elements  {name: elements} of all that may have a residual
    is_busy   None; or whether gradients are on their way, which belong to the step to come"""

    def __init__(self, feedback, elements, rank, is_busy=None):
        self._feedback, self._elements, self._rank = feedback, elements, rank
        self._is_busy = is_busy

    def state_dict(self):
        """Returns a copy of everything, between two steps; empty without a codec."""
        self._check_idle()
        if self._feedback is None:
            return {}
        state = self._feedback.state_dict()
        residuals = {name: torch.from_numpy(one) for name, one in state['residuals'].items()}
        return {**state, 'residuals': residuals, 'rank': self._rank}

    def load_state_dict(self, state):
        """Continues with these residuals, on all ranks or on none. Mismatch, with nothing changed:
        the residuals are of another rank, codec or model."""
        self._check_idle()
        if not isinstance(state, dict):
            raise mismatch(f'rank {self._rank}: residuals are a {type(state).__name__}, '
                           'expected what residuals.state_dict() has returned')
        if self._feedback is None:
            if state:
                raise mismatch(f"rank {self._rank}: residuals of {state.get('codec')}, and "
                               'gradients travel whole here: use that codec, or load none')
            return
        if state.get('rank', self._rank) != self._rank:
            raise mismatch(f"rank {self._rank}: residuals of rank {state['rank']}, expected its "
                           'own: each rank saves its own, and loads what it has saved')
        self._feedback.load_state_dict({key: of for key, of in state.items() if key != 'rank'},
                                       self._elements)

    def _check_idle(self):
        if self._is_busy and self._is_busy():
            raise mismatch(f'rank {self._rank}: residuals between backward() and step(): gradients '
                           'are on their way; call it after step()')
