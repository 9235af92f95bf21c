#!/usr/bin/env python3
"""Under a real CPU quota or affinity: as many threads as it allows, so that nobody is throttled."""
import json
import os
import subprocess
import tempfile
import time
import unittest

import tiny_model
from local_cluster import BIN, PATIENCE, wait_until

PERIOD_US = 100_000


def cpu_hierarchy():
    """Where groups that limit CPU time can be made, and the generation; None if nowhere."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [line.split() for line in file]
    for fields in mounts:
        kind, options, folder = fields[fields.index("-") + 1], fields[-1].split(","), fields[4]
        if kind == "cgroup" and "cpu" in options:
            return folder, 1
        if kind == "cgroup2":
            with open(f"{folder}/cgroup.subtree_control", encoding="utf-8") as file:
                if "cpu" in file.read().split():
                    return folder, 2
    return None


class Group:
    """A control group with a CPU quota; gone at the end, when nobody is in it any more."""

    def __init__(self, cpus):
        hierarchy = cpu_hierarchy()
        if hierarchy is None:
            raise unittest.SkipTest("no control group hierarchy limits CPU time here")
        folder, self.generation = hierarchy
        self.folder = f"{folder}/cairn-quota-test-{os.getpid()}"
        quota = int(cpus * PERIOD_US)
        try:
            os.mkdir(self.folder)
            if self.generation == 1:
                self.write("cpu.cfs_period_us", PERIOD_US)
                self.write("cpu.cfs_quota_us", quota)
            else:
                self.write("cpu.max", f"{quota} {PERIOD_US}")
        except OSError as error:
            self.remove()
            raise unittest.SkipTest(f"may not make a control group: {error}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        wait_until(self.remove, 10, f"{self.folder} is empty")

    def write(self, name, value):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(f"{value}\n")

    def remove(self):
        try:
            os.rmdir(self.folder)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True

    def counters(self):
        """Times throttled, and for how many seconds."""
        with open(f"{self.folder}/cpu.stat", encoding="utf-8") as file:
            stat = dict(line.split() for line in file)
        if self.generation == 1:
            return int(stat["nr_throttled"]), int(stat["throttled_time"]) / 1e9
        return int(stat["nr_throttled"]), int(stat["throttled_usec"]) / 1e6

    def run(self, *command):
        """Output of a program that runs in this group from its start."""
        enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{self.folder}/cgroup.procs"]
        return subprocess.run([*enter, *command], capture_output=True, text=True,
                              timeout=120 * PATIENCE, check=True).stdout


class Quota(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = tiny_model.write(os.path.join(cls.folder.name, "tiny"))

    def bench(self, *more):
        return [os.path.join(BIN, "cairn"), "bench", "--model", self.model, "--prompt", "200",
                "--gen", "0", "--json", *more]

    def test_the_kernel_counts_those_who_take_more_than_their_quota(self):
        with Group(0.1) as group:
            group.run("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done")
            throttled, seconds = group.counters()
        self.assertGreater(throttled, 0)
        self.assertGreater(seconds, 0)

    def test_as_many_threads_run_as_the_quota_allows_and_none_is_throttled(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("the quota limits nothing on a single CPU")
        for cpus, threads in ((1, 1), (1.5, 1), (2, 2)):
            with self.subTest(cpus=cpus), Group(cpus) as group:
                start = time.monotonic()
                out = json.loads(group.run(*self.bench("--repeat", "1000")))
                took = time.monotonic() - start
                _, seconds = group.counters()
                self.assertEqual(out["threads"], threads)
                # Two threads on one CPU's quota are throttled for two fifths of the time.
                self.assertLess(seconds, 0.1 * took, "throttled")

    def test_ranks_of_one_process_share_the_quota(self):
        with Group(2) as group:
            out = json.loads(group.run(*self.bench("--tp", "2")))
            self.assertEqual((out["tp"], out["threads"]), (2, 2), "one thread each")

    def test_one_cpu_of_many_is_one_thread(self):
        cpu = min(os.sched_getaffinity(0))
        out = subprocess.run(["taskset", "-c", str(cpu), *self.bench()], capture_output=True,
                             text=True, timeout=120 * PATIENCE, check=True).stdout
        self.assertEqual(json.loads(out)["threads"], 1)


if __name__ == "__main__":
    unittest.main()
