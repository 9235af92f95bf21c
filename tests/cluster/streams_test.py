#!/usr/bin/env python3
"""64 streams at once, half of which give up at any moment; first for CAIRN_STREAM_SECONDS (10)."""
import os
import random
import signal
import subprocess
import unittest

from local_cluster import BIN, PATIENCE, Cluster

PROGRAM = os.path.join(BIN, "../tests/stream_load")
SECONDS = int(os.environ.get("CAIRN_STREAM_SECONDS", "10"))


class Streams(unittest.TestCase):
    def check(self, seconds, **options):
        with Cluster(**options) as cluster:
            cluster.wait_serving()
            seed = random.randrange(1 << 30)
            done = subprocess.run([PROGRAM, cluster.endpoint, "64", str(seconds), str(seed)],
                                  capture_output=True, text=True,
                                  timeout=(seconds + 120) * PATIENCE)
            print(done.stdout.strip(), flush=True)
            logs = "".join(cluster.log(name)[-2000:] for name in cluster.logs)
            self.assertEqual(done.returncode, 0, f"seed {seed}: {done.stderr[-2000:]}\n{logs}")
            cluster.wait_idle()
            group = cluster.status()["groups"][0]
            self.assertEqual(group["last_failure"], "")
            # A sanitizer that finds a leak says so in the exit status.
            for name in cluster.processes:
                cluster.kill(name, signal.SIGTERM)
            for name, process in cluster.processes.items():
                self.assertEqual(process.wait(timeout=30 * PATIENCE), 0, cluster.log(name)[-3000:])
            return group["engine"]

    def test_every_answer_is_that_of_a_lone_run(self):
        self.check(SECONDS, tp=2)

    def test_so_it_is_when_blocks_run_out(self):
        # 64 streams of up to 500 tokens in a pool of some 2,000: most are preempted.
        self.assertGreater(self.check(10, coordinator=["--kv-memory=1MiB"])["preemptions"], 10)


if __name__ == "__main__":
    unittest.main()
