"""Tests copies of tables on the aggregator of another host. The log of changed rows is written over
the network: each aggregator runs in its own network namespace and shares no memory. Owners are
killed one after the other; a BSP table has the bits of a replay after each clock."""
import os
import re
import signal
import unittest

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import test_nodes as nodes
import test_table_replicas as near
from harness import until

rank_trains = near.rank_trains
KILLS = 2


@unittest.skipUnless(os.geteuid() == 0, 'network namespaces need root')
class FarTables(unittest.TestCase):
    def setUp(self):
        # three aggregators share a core, so an aggregator may be stopped for longer than the
        # default timeout
        self.nodes, self.service = nodes.start(self.addCleanup, '--aggregator-timeout', 6)
        self.core = sorted(os.sched_getaffinity(0))[-1]
        for node in 'abc':
            self.service.add_aggregator(node, self.core)

    def start(self):
        prefixes = {rank: self.nodes.inside(node, []) for rank, node in enumerate('ab')}
        self.processes = ranks.start_ranks(
            'rank_trains', 2, prefixes, **self.service.key('users'),
            GRADPOOL_ENDPOINT=self.service.endpoint, TEST_FOLDER=str(self.service.folder),
            TEST_CONSISTENCY='bsp')
        self.addCleanup(lambda: [p.kill() for p in self.processes])

    def await_ranks(self, condition, what):
        until(lambda: condition() or any(p.poll() is not None for p in self.processes), what,
              process=self.service.serve)

    def copies(self):
        return near.TableReplicas.copies(self)

    def await_copies(self):
        """Waits until each lane with shards has a whole copy."""
        def are_whole():
            copies = self.copies()
            return copies and None not in copies.values()
        self.await_ranks(are_whole, lambda: f'all copies are whole: {self.copies()}')

    def kill_owner(self):
        """Kills the host of a lane with shards. A new aggregator then starts on this host."""
        owner = min(self.copies())
        a = next(a for a in self.service.serving()
                 if any(lane['lane'] == owner for lane in a['lanes']))
        os.kill(a['pid'], signal.SIGKILL)
        self.service.aggregators -= 1
        served = rf'lane \d+ serves the tables of lane {owner},'
        self.await_ranks(lambda: re.search(served, self.service.serve.text()),
                         f'a copy of the tables of lane {owner} continues')
        self.service.add_aggregator(a['node'].rpartition('-')[2], self.core)

    def test_bsp_has_the_same_bits_after_lost_hosts(self):
        self.start()
        self.await_ranks(lambda: len(list(self.service.folder.glob('trains.*'))) == 2,
                         'every rank trains')
        for _ in range(KILLS):
            self.await_copies()
            self.kill_owner()
        self.await_copies()
        (self.service.folder / 'stop').touch()
        found = ranks.finish_ranks(self.processes)
        self.assertEqual([wrong for _, *wrong in found], [[0]] * len(found), found)


if __name__ == '__main__':
    ranks.main(globals())
