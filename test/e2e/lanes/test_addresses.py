"""Runs whole jobs over TCP on addresses other than 127.0.0.1: over IPv6, and on a chosen
interface."""
import contextlib
import socket
import unittest

import tap
from harness import Service, result


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(('::1', 0))
        return True
    return False


class On(Service):
    """A service that listens for control connections at a given address."""

    def __init__(self, listen, *options):
        self.listen = listen
        super().__init__(*options, aggregators=1)

    def start(self, name='serve', listen=None):
        super().start(name, self.listen)

    def lanes(self):
        return [lane['ofi'] for a in self.status()['aggregators'] for lane in a['lanes']]


class Addresses(unittest.TestCase):

    def check_job(self, service, job):
        workers = service.workers(job, 3, '--transport', 'tcp', '--rounds', '20', '--tensors', '4',
                                  '--elements', '300000')
        for worker in workers:
            answer = result(worker)
            self.assertEqual((answer['rounds'], answer['wrong']), (20, 0))

    @unittest.skipUnless(has_ipv6(), 'this host has no IPv6')
    def test_a_job_trains_over_ipv6_from_control_to_data(self):
        service = On('gradpool://[::1]:0', '--advertise', '::1')
        self.addCleanup(service.end)
        self.assertTrue(service.endpoint.startswith('gradpool://[::1]:'), service.endpoint)
        for lane in service.lanes():
            self.assertTrue(lane.startswith('[::1]:'), lane)
        self.check_job(service, 'six')
        self.assertEqual(service.stop(), 0)

    def test_a_job_trains_through_the_interface_that_was_chosen(self):
        service = On('gradpool://127.0.0.1:0', '--interface', 'lo')
        self.addCleanup(service.end)
        for lane in service.lanes():
            self.assertTrue(lane.startswith('127.0.0.1:'), lane)
        self.assertIn('interface lo', service.serve.text())
        self.check_job(service, 'chosen')
        self.assertEqual(service.stop(), 0)


if __name__ == '__main__':
    tap.main()
