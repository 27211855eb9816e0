"""Searchers, which choose the parameters of trials. A searcher has these methods:

  ask()    returns the parameters of the next trial, a dict; None: none now, or none at all if no
           trial runs. The n-th call is for trial n.
  tell(number, value, state)  gets the end of a trial: its number, its last value of the metric
           (None: no report), and its state: 'trained', 'ended' by the rule, 'killed' or 'failed'
  restore(trials)  is called once, before ask(), when a study is resumed: the list of all trials so
           far, each with number, parameters, value and state. Studies whose searcher lacks the
           method cannot be resumed."""
import itertools
import random

from ..errors import mismatch


def grid(**lists):
    """Yields a dict for each combination of the values, the last name fastest."""
    for name, values in lists.items():
        if isinstance(values, (str, bytes, dict)) or not hasattr(values, '__iter__'):
            raise mismatch(f'grid({name}={values!r}), expected a list of values; put one value in '
                           'brackets')
    values = [list(one) for one in lists.values()]
    empty = [name for name, one in zip(lists, values) if not one]
    if empty or not lists:
        raise mismatch(f'grid() without a value of {empty[0] if empty else "any name"}, so there '
                       'is no trial; give a list with a value')
    return (dict(zip(lists, chosen)) for chosen in itertools.product(*values))


class Random:
    """A searcher with `trials` random choices, the same for the same seed.

      space  for each name a list, of which one value is chosen, or a function of a random.Random:
             lr=lambda r: 10 ** r.uniform(-4, -1)"""

    def __init__(self, trials, seed=0, **space):
        self.trials, self._seed, self._space, self._asked = trials, seed, space, 0
        for name, choice in space.items():
            if not callable(choice) and not (isinstance(choice, (list, tuple)) and choice):
                raise mismatch(f'Random({name}={choice!r}), expected a list with a value, or a '
                               'function of a random.Random')

    def ask(self):
        if self._asked >= self.trials:
            return None
        self._asked += 1
        chance = random.Random(f'{self._seed}/{self._asked}')
        return {name: choice(chance) if callable(choice) else chance.choice(choice)
                for name, choice in self._space.items()}

    def tell(self, number, value, state):
        pass

    def restore(self, trials):
        self._asked = len(trials)
