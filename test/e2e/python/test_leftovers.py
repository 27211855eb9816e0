"""Tests that a process running longer than the service keeps no resource of it."""
import json
import os
import pathlib
import unittest

import numpy

import ranks
import gradpool
from harness import Service, until


def held():
    """Returns shared memory of a service that is mapped or open in this process."""
    maps = [line.split(maxsplit=5)[5].strip()
            for line in pathlib.Path('/proc/self/maps').read_text().splitlines()
            if '/memfd:gradpool' in line]
    links = []
    for entry in os.listdir('/proc/self/fd'):
        try:
            links.append(os.readlink(f'/proc/self/fd/{entry}'))
        except OSError:  # raised for the descriptor of the folder itself
            continue
    return maps + [link for link in links if '/memfd:gradpool' in link]


def rank_stays(rank, workers):
    """Trains until the service has ended. Then leaves the job."""
    before = held()
    client = gradpool.connect()
    job = client.join('stays', rank, workers)
    tensor = job.declare('w', 100000)
    values = numpy.ones(100000, numpy.float32)
    during, error = [], None
    while error is None:
        try:
            job.push_pull(tensor, values).wait()
            during = during or held()
            pathlib.Path(os.environ['TRAINS'], str(rank)).touch()
        except gradpool.GradpoolError as said:
            error = str(said)
    client.close()
    return {'before': before, 'during': during, 'after': held(), 'error': error}


class Leftovers(unittest.TestCase):
    def test_a_worker_that_lives_on_holds_nothing_of_a_service_that_has_ended(self):
        service = Service(aggregators=2)
        self.addCleanup(service.end)
        processes = ranks.start_ranks('rank_stays', 2, GRADPOOL_ENDPOINT=service.endpoint,
                                      GRADPOOL_TRANSPORT='shm', TRAINS=str(service.folder))
        until(lambda: all((service.folder / str(rank)).exists() for rank in range(2)), 'it trains',
              process=service.serve)
        self.assertEqual(service.stop(), 0)
        for said in ranks.finish_ranks(processes):
            self.assertIn('the operator stopped the service', said['error'], json.dumps(said))
            self.assertTrue(said['during'])
            self.assertEqual((said['before'], said['after']), ([], []))


if __name__ == '__main__':
    ranks.main(globals())
