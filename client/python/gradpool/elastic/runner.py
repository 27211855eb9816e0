"""Starts the workers of a script on this host, resizes their job, and replaces lost workers. One
thread waits for signals, messages and ends of processes. Imports no torch."""
import errno
import os
import selectors
import signal
import socket
import sys
import time

from .worker import command_of, text_of, Worker

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STEPS = {signal.SIGUSR1: 1, signal.SIGUSR2: -1}


class Runner:
    """Runs a script until its workers have ended. run() returns the exit status.

      options  of the command: __main__.py"""

    def __init__(self, options):
        self._options, self._command = options, command_of(options.script, options.arguments)
        # numbers of workers: wanted now, in the job now, at the start of the job, in the last
        # request
        self._wanted = self._size = self._founders = self._asked = options.workers
        self._asked_of = None       # worker to which the present request to resize was sent
        self._workers = {rank: Worker(rank) for rank in range(self._wanted)}
        self._has_ended, self._stopped_by, self._status = False, None, 0
        self._selector = selectors.DefaultSelector()
        self._signals, self._wakeup = socket.socketpair()
        self._signals.setblocking(False)
        self._wakeup.setblocking(False)

    def run(self):
        self._selector.register(self._signals, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in (*_STOPS, *_STEPS):
            if number in _STEPS or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)      # signals are read from a socket
        try:
            while self._lives():
                self._turn()
        finally:
            for worker in self._alive():
                worker.kill()
        return 128 + self._stopped_by if self._stopped_by else self._status

    def _say(self, text):
        print(f'gradpool: job {self._options.job}: {text}', file=sys.stderr, flush=True)

    def _alive(self):
        return [worker for worker in self._workers.values() if worker.process is not None]

    def _lives(self):
        return any(worker.process is not None or worker.due_s is not None
                   for worker in self._workers.values())

    # ---- one turn ----

    def _turn(self):
        now_s = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.next_s() is not None and worker.next_s() <= now_s:
                self._keep_time(worker)
        self._ask()
        for key, _ in self._selector.select(self._pause_s()):
            if key.fileobj is self._signals:
                self._hear_signals()
            elif key.data.process is None:
                pass    # the process of this worker has ended in this turn
            elif key.fileobj is key.data.link:
                self._hear(key.data)
            else:
                self._hear(key.data)
                self._reap(key.data)

    def _pause_s(self):
        times_s = [worker.next_s() for worker in self._workers.values()]
        times_s = [time_s for time_s in times_s if time_s is not None]
        return max(0, min(times_s) - time.monotonic()) if times_s else None

    def _keep_time(self, worker):
        if worker.process is None:
            self._start(worker)
        elif worker.is_ended_by is not None:
            worker.limit_s = None
            worker.kill()
        elif worker.leaves:
            self._say(f'rank {worker.rank} has not left within {self._options.leave_timeout} s, '
                      'and is ended; to wait longer raise --leave-timeout')
            worker.end(signal.SIGTERM)
        elif self._has_ended:
            self._say(f'rank {worker.rank} had not begun a step at the end of the training, and is '
                      'ended; start fewer workers, or train for longer')
            worker.end(signal.SIGTERM)
        else:
            self._say(f'rank {worker.rank} has not begun a step within '
                      f'{self._options.start_timeout} s, and is ended; look at its output, or '
                      'raise --start-timeout')
            worker.end(signal.SIGTERM)

    def _start(self, worker):
        if not self._alive() and not self._has_ended:
            # the first workers, or the workers of a new job after the loss of all workers
            self._founders = self._size = self._asked = self._wanted
        if not self._is_needed(worker.rank):
            worker.due_s = None     # the rank was removed while its start was due
            return
        options = self._options
        worker.founds = worker.rank < self._founders and not self._has_begun()
        environment = {'GRADPOOL_JOB': options.job, 'GRADPOOL_ENDPOINT': options.endpoint}
        if options.workers_max > 1:
            environment['OMP_NUM_THREADS'] = os.environ.get('OMP_NUM_THREADS', '1')
        worker.start(self._command, environment, options.start_timeout,
                     {'workers': self._founders, 'workers_max': options.workers_max})
        self._selector.register(worker.pidfd, selectors.EVENT_READ, worker)
        self._selector.register(worker.link, selectors.EVENT_READ, worker)

    # ---- the number of workers ----

    def _hear_signals(self):
        for number in self._signals.recv(256):
            if number in _STOPS:
                self._stop(number)
            elif number in _STEPS and not self._has_ended and not self._stopped_by:
                self._resize(self._wanted + _STEPS[number])

    def _resize(self, workers):
        if not 1 <= workers <= self._options.workers_max:
            self._say(f'a job of {self._wanted} workers cannot have {workers}, expected 1 to '
                      f'{self._options.workers_max}; --workers-max sets the largest number')
            return
        self._say(f'{workers} workers, from {self._wanted}')
        self._wanted = workers
        for rank in range(workers):
            worker = self._workers.setdefault(rank, Worker(rank))
            if worker.process is None and worker.due_s is None:
                worker.due_s, worker.failures = time.monotonic(), 0
        self._remove()

    def _has_begun(self):
        """Returns whether the job has made its first step."""
        return any(worker.trains for worker in self._alive())

    def _is_needed(self, rank):
        """Returns whether the rank needs a process. The first step of a job waits for all workers
        with which the job starts."""
        is_awaited = rank < self._founders and not self._has_ended and not self._has_begun()
        return rank < self._wanted or is_awaited

    def _remove(self):
        """Ends workers whose ranks are not needed. A worker that takes part in the steps leaves the
        job by itself."""
        for worker in self._workers.values():
            if self._is_needed(worker.rank):
                if worker.leaves:   # the job has grown again
                    worker.stay()
                continue
            worker.due_s = None
            if worker.process is None or worker.is_ended_by is not None:
                continue
            if worker.trains or worker.founds:
                worker.leave(self._options.leave_timeout)
            else:
                worker.end(signal.SIGTERM)

    def _ask(self):
        """Lets a worker that trains request the wanted number of workers."""
        if self._asked == self._wanted or self._has_ended or self._stopped_by:
            return
        for _, worker in sorted(self._workers.items()):
            may_ask = worker.process is not None and worker.trains and worker.rank < self._wanted
            if may_ask and worker.resize(self._wanted):
                self._asked, self._asked_of = self._wanted, worker
                return

    def _refused(self, message):
        if message['refused'] != self._wanted or message['errno'] == errno.ECANCELED:
            return      # another request has followed
        self._say(f'no {self._wanted} workers, still {self._size}: {message["text"]}')
        if self._wanted != self._size:
            self._wanted, self._asked = self._size, None
            self._remove()

    # ---- messages and ends of workers ----

    def _hear(self, worker):
        for message in worker.messages():
            if 'step' in message and not worker.trains:
                worker.trains = True
                if not worker.leaves:
                    worker.stay()
                self._remove()
            elif 'ending' in message:
                worker.ending = message['ending']
            elif 'resized' in message:
                self._size, self._asked_of = message['resized'], None
            elif 'refused' in message:
                self._asked_of = None
                self._refused(message)
        if worker.is_silent and worker.link in self._selector.get_map():
            self._selector.unregister(worker.link)

    def _reap(self, worker):
        self._selector.unregister(worker.pidfd)
        if worker.link in self._selector.get_map():
            self._selector.unregister(worker.link)
        status = worker.reap()
        if self._asked_of is worker:
            self._asked, self._asked_of = None, None    # the next worker repeats the request
        is_ended = self._has_ended and worker.is_ended_by is not None
        if self._stopped_by or is_ended or not self._is_needed(worker.rank):
            return
        if status == 0 and worker.ending == 'left':
            worker.due_s = time.monotonic()     # the job has grown again meanwhile
        elif status == 0:
            self._end_late(worker)
        else:
            self._replace(worker, status)

    def _end_late(self, worker):
        """Handles the end of the training: ends workers that do not take part in the training."""
        self._has_ended = True
        for other in self._workers.values():
            other.due_s = None
            if other.process is not None and not other.trains and other.is_ended_by is None:
                other.limit_s = time.monotonic() + self._options.leave_timeout

    def _replace(self, worker, status):
        told = f'rank {worker.rank} {text_of(status)}'
        if self._has_ended:
            self._status = self._status or (status if status > 0 else 128 - status)
            return self._say(f'{told} after the end of the training; look at its output')
        pause_s = worker.fail()
        if pause_s is not None:
            return self._say(f'{told}; a new process starts in {pause_s} s')
        told += f' before its first step, the last of {worker.failures} processes'
        if any(other.trains for other in self._alive()):
            return self._say(f'{told}; the others train on. Look at its output; SIGUSR1 and '
                             'SIGUSR2 start the rank again')
        self._status = status if status > 0 else 128 - status
        self._say(f'{told}; all are ended. Look at its output')
        self._has_ended = True
        self._end_all(signal.SIGTERM)

    # ---- the end ----

    def _stop(self, number):
        if self._stopped_by:        # a second signal does not wait
            for worker in self._alive():
                worker.kill()
        else:
            self._stopped_by = number
            self._end_all(number)

    def _end_all(self, number):
        for worker in self._workers.values():
            worker.due_s = None
            if worker.process is not None:
                worker.end(number)
