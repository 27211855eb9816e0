"""Backup workers in the package gradpool, without torch, against a real service: the rule of a job,
and ends of rounds."""
import concurrent.futures
import errno

import harness
import ranks
import gradpool
from python_case import Case, full, setUpModule, tearDownModule  # noqa: F401

WORKERS = 3


class Rounds(Case):
    def join_all(self, **options):
        name = self.id().rsplit('.', 1)[-1]
        client = gradpool.connect()
        self.addCleanup(client.close)
        return [client.join(name, rank, WORKERS, durability='none', **options)
                for rank in range(WORKERS)]

    def begin(self):
        """Joins all ranks and sets the parameters to those of rank 0. Returns jobs, tensors and
        parameters by rank."""
        jobs = self.join_all(backup='static:2')
        tensors = [job.declare('t', 100, rule='sgd') for job in jobs]
        values = [full(rank + 1) for rank in range(WORKERS)]
        for request in [job.broadcast(tensor, mine)
                        for job, tensor, mine in zip(jobs, tensors, values)]:
            request.wait()
        return jobs, tensors, values

    def end(self, jobs, ranks_of_round):
        """Ends a round on some ranks at the same time. Returns their ends."""
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(lambda rank: jobs[rank].end_round(loss=0.5), ranks_of_round))

    def test_a_late_gradient_is_dropped_and_parameters_stay_equal(self):
        jobs, tensors, values = self.begin()
        requests = [jobs[rank].update(tensors[rank], full(rank + 1), values[rank], lr=1.0)
                    for rank in range(WORKERS)]
        self.assertEqual(self.end(jobs, range(2)), [(1, 0, 2, WORKERS, False)] * 2)
        self.assertEqual(self.end(jobs, [2]), [(1, 1, 2, WORKERS, True)])
        for request, mine in zip(requests, values):
            request.wait()
            self.assertEqual(mine.tolist(), full(1 - 1.5).tolist())

    def test_a_rank_sees_that_its_round_is_closed(self):
        jobs, tensors, values = self.begin()
        for number in 1, 2:
            requests = [jobs[rank].update(tensors[rank], full(0), values[rank], lr=1.0)
                        for rank in range(WORKERS)]
            self.assertEqual([end.number for end in self.end(jobs, range(2))], [number] * 2)
            if number == 2:
                # the library reads the lane's messages while a request is awaited
                harness.until(lambda: not requests[2].done(1) and jobs[2].passed() == 2,
                              'rank 2 sees that round 2 is closed')
            self.assertTrue(self.end(jobs, [2])[0].is_dropped)
            self.assertEqual(jobs[2].passed(), 0)
            for request in requests:
                request.wait()

    def step(self, jobs, tensors, values, ranks_of_round):
        """Does a round on some ranks at the same time. Returns its number."""
        requests = [jobs[rank].update(tensors[rank], full(rank + 1), values[rank], lr=1.0)
                    for rank in ranks_of_round]
        ends = self.end(jobs, ranks_of_round)
        for request in requests:
            request.wait()
        return max(end.number for end in ends)

    def test_a_rank_that_stops_in_the_middle_of_a_round_delays_no_round_for_long(self):
        """Rank 2 may stop anywhere, also while the leader lane, asleep, waits for it alone."""
        jobs, tensors, values = self.begin()
        parameters = {}     # by the number of the round

        def go_on():
            number = self.step(jobs, tensors, values, range(2))
            parameters[number] = values[0].tolist()
        go_on()
        self.step(jobs, tensors, values, [2])
        for _ in range(10):
            go_on()
            request = jobs[2].update(tensors[2], full(3), values[2], lr=1.0)
            try:
                end = jobs[2].end_round(timeout_ms=1)
            except gradpool.Timeout:
                known = max(parameters)
                for _ in range(4):
                    go_on()
                # rank 2 has the newest round, or the one that it had taken when it stopped
                end, = self.end(jobs, [2])
                self.assertIn(end.number, {known, max(parameters)})
            request.wait()
            self.assertEqual(values[2].tolist(), parameters[end.number])

    def test_a_wait_before_the_end_of_the_round_is_refused(self):
        jobs, tensors, values = self.begin()
        request = jobs[0].update(tensors[0], full(0), values[0], lr=1.0)
        with self.raises(gradpool.GradpoolError, 'round 1 of the job is not ended'):
            request.wait()

    def test_wrong_rules_are_refused(self):
        for rule, words in ('most', "backup rule 'most', expected static:K"), \
                ('static', "as in 'static:12'"), ('auto:3', 'to no other rule'), \
                ('static:x', "as in 'static:12'"), (12, 'backup rule 12'):
            with self.raises(gradpool.Mismatch, words):
                gradpool.Backup(rule)
        with self.raises(gradpool.Mismatch, "rate is 'half', expected one of fixed"):
            gradpool.Backup('static:2', rate='half')
        with self.raises(gradpool.Mismatch, 'least is -1'):
            gradpool.Backup('static:2', least=-1)
        self.assertEqual(repr(gradpool.Backup('static:2', least=1)),
                         "Backup('static:2', least=1, absence=None, gradients=1, rate='fixed', "
                         'again=False)')

    def test_a_rule_that_the_service_lacks_is_refused(self):
        with self.assertRaises(gradpool.GradpoolError) as caught:
            self.join_all(backup='auto')
        self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)
        self.assertIn("does not serve backup rule 'auto'", str(caught.exception))

    def test_a_job_without_backup_workers_has_no_ends_of_rounds(self):
        job = self.join_all()[0]
        with self.raises(gradpool.Mismatch, 'has no backup workers'):
            job.end_round()
        self.assertEqual(job.passed(), 0)


if __name__ == '__main__':
    ranks.main(globals())
