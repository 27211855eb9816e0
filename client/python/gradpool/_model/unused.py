"""Detects parameters that have a gradient on no rank, as find_unused_parameters=True does. PyTorch
does not change such parameters, but lanes update them with a gradient of zeros. With weight decay,
momentum or step counts the results differ (Y114)."""
from ..errors import mismatch


class Unused:
    """Unused parameters of one optimizer, from step to step.

    group_of  function: a parameter's group of the optimizer, with its present settings
    rule_of   function: a parameter's rule"""

    def __init__(self, parameters, group_of, rule_of):
        self._names = {one: name for name, one in parameters.items()}
        self._group_of, self._rule_of = group_of, rule_of
        # parameters that have had no gradient so far; None: before the first step
        self._idle = None

    def check(self, without, has_moments):
        """Called on all ranks after the lanes' step. Raises Mismatch if PyTorch's step would have
        another result.

        without      parameters without a gradient
        has_moments  whether there were moments before this step"""
        if self._idle is None:
            self._idle = set() if has_moments else set(without)
        elif not without and not self._idle:
            return
        for one in without:
            if not self._is_harmless(one):
                raise self._error(one, 'has no gradient on any rank')
        for one in self._idle - set(without):
            if self._counts_steps(one):
                raise self._error(one, 'has its first gradient after steps without one')
        self._idle &= set(without)

    def _is_harmless(self, parameter):
        """Returns whether a step with zeros changes nothing."""
        return not self._group_of(parameter)['weight_decay'] and (
            parameter in self._idle or self._rule_of(parameter) == 'sgd')

    def _counts_steps(self, parameter):
        """Returns whether earlier steps with zeros would change the effect of the first
        gradient."""
        return 'adam' in self._rule_of(parameter) or self._group_of(parameter).get('dampening')

    def _error(self, parameter, what):
        return mismatch(f"parameter '{self._names[parameter]}' {what}: lanes would update the "
                        'parameter with zeros, but PyTorch leaves it unchanged. Set requires_grad '
                        'to False before DistributedDataParallel() if the model does not use the '
                        'parameter, or attach without the optimizer')
