"""Tests quotas of a tenant. Quotas are set with `tenant add` and changed with `tenant set` while
jobs run. Quotas are shown, and remain valid after a restart. Also tests each tenant's share of an
aggregator's address space and descriptors."""
import json
import unittest

import harness
import tap
from harness import BUILD, Process, Service, result, until

HOSTILE = BUILD / 'test' / 'e2e' / 'hostile'
FILES = 1024    # limit of descriptors of each process, in the service with a low limit


class Quotas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service('--require-tls', aggregators=1)
        cls.addClassCleanup(cls.service.end)

    def limits(self, tenant):
        listed = json.loads(self.service.tenant('list', '--json').stdout)['tenants']
        return next(t for t in listed if t['tenant'] == tenant)['limits']

    def change(self, *words):
        done = self.service.tenant('set', *words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def push(self, job, key, elements=256):
        """Runs a job with one worker. Returns its exit status and output."""
        worker = self.service.worker(job, 0, 1, '--rounds', '3', '--elements', elements,
                                     environment=key)
        return worker.wait(), worker.text()

    def test_a_quota_of_a_tenant_holds_at_once_and_after_a_restart(self):
        few = self.service.tenant_key('few', '--job-bytes-max', '4K')
        self.assertEqual(self.limits('few')['job-bytes'], {'used': 0, 'max': 4096, 'own': True})
        code, said = self.push('big', few, 2048)
        self.assertNotEqual(code, 0)
        self.assertIn('gradpool tenant set few --job-bytes-max', said)
        self.change('few', '--job-bytes-max', '8K', '--tenant-jobs-max', '3')
        self.assertEqual(self.push('fits', few, 2048)[0], 0)
        until(lambda: self.service.job('fits') is None, 'the job has ended',
              process=self.service.serve)
        self.service.serve.kill()
        self.service.start('again')
        self.assertEqual(self.limits('few')['tenant-jobs'], {'used': 0, 'max': 3, 'own': True})
        self.change('few', '--job-bytes-max', 'default', '--tenant-jobs-max', 'default')
        self.assertFalse(any(limit['own'] for limit in self.limits('few').values()))
        self.assertEqual(self.push('any', few, 4096)[0], 0)

    def test_other_tenants_keep_the_quotas_of_the_service(self):
        other = self.service.tenant_key('other')
        self.service.tenant_key('none', '--job-bytes-max', '1')
        self.assertEqual(self.push('other', other)[0], 0)

    def test_a_mistake_changes_nothing(self):
        self.service.tenant_key('same', '--loss-limit', '5%')
        for words, answer in ((['same'], 'missing: a quota to set'),
                              (['same', '--job-bytes-max', 'x'], 'expected bytes'),
                              (['nobody', '--tenant-jobs-max', '1'], 'there is no tenant nobody')):
            done = self.service.tenant('set', *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(answer, done.stderr)
        self.assertFalse(any(limit['own'] for limit in self.limits('same').values()))

    def test_variables_of_serve_are_no_quotas_of_a_tenant(self):
        made = harness.run([harness.GRADPOOL, 'tenant', 'add', 'plain', '--state-dir',
                            self.service.state], capture_output=True, text=True,
                           env={**harness.os.environ, 'GRADPOOL_JOB_BYTES_MAX': '1'})
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertFalse(self.limits('plain')['job-bytes']['own'])


class Shares(unittest.TestCase):
    """Starts services with one lane and one hostile tenant."""

    def serve(self, *options, before=()):
        service = Service('--require-tls', '--cores', '0', *options, aggregators=1, before=before)
        self.addCleanup(service.end)
        return service, service.tenant_key('evil'), service.tenant_key('good')

    def crowd(self, service, key, what, count):
        crowd = Process([HOSTILE, what, count], service.folder, what,
                        {**key, 'GRADPOOL_ENDPOINT': service.endpoint})
        self.addCleanup(crowd.kill)
        crowd.wait_for('ready')
        return crowd.text()

    def check_good(self, service, key):
        for transport in 'shm', 'tcp':
            worker = service.worker(f'good-{transport}', 0, 1, '--rounds', '20',
                                    environment={**key, 'GRADPOOL_TRANSPORT': transport})
            self.assertEqual(result(worker)['wrong'], 0)

    def test_a_tenant_s_share_of_address_space_leaves_room_for_others(self):
        service, evil, good = self.serve('--tenant-lent-max', '4T')
        self.assertIn('attached 4\n', self.crowd(service, evil, 'lends', 20))
        self.check_good(service, good)
        until(lambda: 'may lend 4 TiB to this aggregator' in service.serve.text(),
              'the refusal is logged', process=service.serve)

    def test_a_tenant_s_share_of_descriptors_leaves_room_for_others(self):
        service, evil, good = self.serve(before=('prlimit', f'--nofile={FILES}'))
        said = self.crowd(service, evil, 'attaches', FILES // 3)
        self.assertIn('closed 122\n', said)    # 122 is EDQUOT
        self.check_good(service, good)
        late = service.worker('late', 0, 1, '--rounds', '3',
                              environment={**evil, 'GRADPOOL_TRANSPORT': 'shm'})
        self.assertNotEqual(late.wait(), 0)
        self.assertIn("refuses rank 0 of job 'late': the tenant already uses its share",
                      late.text())


if __name__ == '__main__':
    tap.main()
