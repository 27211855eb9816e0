"""Backup workers of a job: the rule, an argument of Client.join() and ddp.attach(), and the end of
a round."""
import collections
import ctypes

from ..errors import mismatch
from .binding import (BACKUP_RATES, BACKUP_RULES, BackupSpec, check, lib, number, path_of, RoundEnd,
                      U32_MAX)

_WITH_K = 'static', 'adasync'
NEVER = 'never'
WAIT, INTERRUPT = STRAGGLERS = 'wait', 'interrupt'

# End of a round with backup workers, as gp_round of gradpool.h: the newest round of this rank,
# rounds without its gradient, gradients in the mean (0: unknown), ranks; whether this rank's
# gradient was dropped; gradients of this rank in the mean; and whether the round is still open and
# another gradient is wanted, in which case all other values are 0.
EndOfRound = collections.namedtuple(
    'EndOfRound', ('number', 'missed', 'counted', 'of', 'is_dropped', 'own', 'goes_on'))
_DROPPED, _GOES_ON = 1, 2   # results of gp_round_end()


class Backup:
    """Backup workers: a round closes before its slowest ranks arrive, and their gradients are
    dropped.

      rule       "static:12" closes each round at its 12th gradient. "auto" decides at each gradient
                 whether the next gradient is worth its time. "dbw" and "blind" choose a number
                 before each round. "adasync:2" begins with 2 gradients, and waits for more
                 gradients as the loss falls
      least      fewest gradients of a round; None: 2
      absence    number of missed rounds after which rounds wait for the rank; "never": rounds do
                 not wait. None: 64, and "never" for static
      lag        in a job without update rules: number of rounds by which a rank may lag behind, up
                 to 16; None: 4
      gradients  most gradients of one rank in one round, up to 7: a fast rank computes another
                 gradient on the same parameters while the round waits for slow ranks
      rate       "fixed", or "proportional" to the number of gradients
      stragglers "wait": a rank computes its gradient to the end, though the round is closed.
                 "interrupt": the rank leaves the body of "with attachment.work():" of ddp.attach()
      again      whether batches() of ddp.attach() repeats a batch whose gradient was dropped
      record     file in which rank 0 records the set of each round; None: GRADPOOL_SETS_RECORD
      replay     recording whose sets the rounds get; None: GRADPOOL_SETS_REPLAY"""

    def __init__(self, rule, least=None, absence=None, lag=None, gradients=1, rate='fixed',
                 stragglers=WAIT, again=False, record=None, replay=None):
        name, colon, k = rule.partition(':') if isinstance(rule, str) else (rule, '', '')
        if name not in BACKUP_RULES:
            raise mismatch(f'backup rule {rule!r}, expected static:K, auto, dbw, blind or '
                           'adasync:K')
        if (name in _WITH_K) != bool(colon) or (colon and not k.isdecimal()):
            raise mismatch(f'backup rule {rule!r}: give the number of gradients to static and '
                           "adasync, as in 'static:12', and to no other rule")
        if rate not in BACKUP_RATES:
            raise mismatch(f"rate is {rate!r}, expected one of {', '.join(BACKUP_RATES)}")
        if stragglers not in STRAGGLERS:
            raise mismatch(f"stragglers is {stragglers!r}, expected 'wait' or 'interrupt'")
        self.rule, self.least, self.absence, self.lag = rule, least, absence, lag
        self.gradients, self.rate, self.again = gradients, rate, again
        self.stragglers, self.record, self.replay = stragglers, record, replay
        self.spec = BackupSpec(
            rule=BACKUP_RULES[name], k=number(int(k or 0), 'k', U32_MAX),
            least=0 if least is None else number(least, 'least', U32_MAX),
            absence=_absence_of(absence, name),
            lag=0 if lag is None else number(lag, 'lag', U32_MAX),
            gradients=number(gradients, 'gradients', U32_MAX), rate=BACKUP_RATES[rate],
            record=_path_of(record), replay=_path_of(replay))

    def __repr__(self):
        files = ''.join(f', {name}={path!r}' for name, path in
                        (('record', self.record), ('replay', self.replay)) if path is not None)
        return (f'Backup({self.rule!r}, least={self.least}, absence={self.absence}, '
                f'lag={self.lag}, gradients={self.gradients}, rate={self.rate!r}, '
                f'stragglers={self.stragglers!r}, again={self.again}{files})')


def _absence_of(absence, rule):
    if absence == NEVER or (absence is None and rule == 'static'):
        return U32_MAX
    return 0 if absence is None else number(absence, 'absence', U32_MAX - 1)


def _path_of(path):
    return None if path is None else path_of(path)


def backup_spec(backup):
    """Returns the BackupSpec of a Backup or of its rule. None: every round waits for all ranks."""
    if backup is None:
        return BackupSpec()
    if not isinstance(backup, Backup):
        backup = Backup(backup)
    return backup.spec


def is_same_spec(one, other):
    """Returns whether jobs with these Backups close their rounds in the same way."""
    values = [[getattr(backup.spec, name) for name, _ in BackupSpec._fields_]
              for backup in (one, other)]
    return values[0] == values[1]


def end_round(handle, loss, timeout_ms):
    """Calls gp_round_end() on the calling thread, for a job's `handle`; returns an EndOfRound."""
    end = RoundEnd()
    return _end_of(lib.gp_round_end(handle, loss, timeout_ms, ctypes.byref(end)), end)


def skip_round(handle, timeout_ms):
    """Calls gp_round_skip() on the calling thread; returns an EndOfRound."""
    end = RoundEnd()
    return _end_of(lib.gp_round_skip(handle, timeout_ms, ctypes.byref(end)), end)


def _end_of(result, end):
    check(result)
    return EndOfRound(end.number, end.missed, end.counted, end.of, result == _DROPPED, end.own,
                      result == _GOES_ON)
