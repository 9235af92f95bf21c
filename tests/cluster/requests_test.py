#!/usr/bin/env python3
"""What a client may count on whatever else the cluster does: the same answer among any neighbours
and after preemption, progress beside long prompts, and a clear no to what can never run."""
import json
import os
import threading
import time
import unittest

from local_cluster import PATIENCE, Cluster, cairn, wait_until

PROMPT = ("--prompt", "The stones that those who pass leave")
SEEDED = (*PROMPT, "--seed", 7, "--temperature", 0.9, "--top-p", 0.9, "--ignore-eos",
          "--max-tokens", 48, "--n", 4, "--json")
BUSY = ("--prompt", "stones", "--temperature", 1.5, "--ignore-eos", "--max-tokens", 30000)
TOKENIZER_IDS = 259  # the model has logits for more


def whole(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ids_of(answer):
    return [choice["ids"] for choice in answer.get("choices", [answer])]


def apart_from_usage(answer):
    """What must not depend on the cache, the pool or the neighbours."""
    def keep(choice):
        usage = choice["usage"]
        return {**{k: v for k, v in choice.items() if k not in ("usage", "choices")},
                "tokens": (usage["prompt_tokens"], usage["completion_tokens"])}
    return [keep(choice) for choice in answer.get("choices", [answer])]


class Answers(unittest.TestCase):
    def test_the_text_of_every_choice_is_the_one_shot_decode_of_its_ids(self):
        with Cluster() as cluster:
            cluster.wait_serving()
            # Random bytes: most characters are cut or broken somewhere.
            answer = whole(cluster.generate(*PROMPT, "--seed", 3, "--temperature", 2,
                                            "--ignore-eos", "--max-tokens", 200, "--n", 4,
                                            "--json"))
            lines = "".join(json.dumps(ids) + "\n" for ids in ids_of(answer))
            decoded = cairn("detokenize", "--model", cluster.model, "--skip-special", stdin=lines,
                            check=True).stdout
            self.assertEqual([c["text"] for c in answer["choices"]],
                             [json.loads(line) for line in decoded.splitlines()])
            self.assertIn("\ufffd", answer["text"])

    def test_the_json_of_an_answer_is_the_same_offline_and_from_a_cluster(self):
        ask = (*SEEDED, "--logprobs", 2)
        with Cluster(coordinator=["--no-prefix-cache"]) as cluster:
            cluster.wait_serving()
            offline = cairn("generate", "--model", cluster.model, "--no-prefix-cache", *ask)
            answer = whole(offline)
            self.assertEqual(offline.stdout, cluster.generate(*ask).stdout)
            self.assertEqual([choice["seed"] for choice in answer["choices"]], [7] * 4)
            self.assertEqual([len(e["top"]) for e in answer["logprobs"]], [2] * 48)
            for command, ids in (("generate", "[1, -2]"), ("generate", "[2.5]"),
                                 ("generate", "{}"), ("detokenize", "[259]"),
                                 ("detokenize", "7"), ("logits", '["x"]')):
                more, text = (("--ids", ids), "") if command == "generate" else ((), ids)
                out = ("--out", os.path.join(cluster.folder, "out")) if command == "logits" else ()
                refused = cairn(command, "--model", cluster.model, *more, *out, stdin=text)
                self.assertGreater(refused.returncode, 0)
                self.assertRegex(refused.stderr, "allowed 0..|not a JSON array of ids")
                self.assertEqual(len(refused.stderr.strip().splitlines()), 1, refused.stderr)

    def test_a_stop_string_ends_a_stream_where_it_ends_the_whole_answer(self):
        ask = (*PROMPT, "--greedy", "--ignore-eos", "--max-tokens", 48)
        with Cluster() as cluster:
            cluster.wait_serving()
            text = whole(cluster.generate(*ask, "--json"))["text"]
            for length in (1, 2):
                stop = next(text[i:i + length] for i in range(6, len(text) - length)
                            if "\ufffd" not in text[i:i + length])
                want = text[:text.index(stop)]
                answer = whole(cluster.generate(*ask, "--stop", stop, "--json"))
                self.assertEqual((answer["text"], answer["finish_reason"]), (want, "stop"))
                self.assertEqual(cluster.generate(*ask, "--stop", stop).stdout, want + "\n")

    def test_ids_that_pad_the_logits_are_never_drawn(self):
        with Cluster(tp=2) as cluster:
            cluster.wait_serving()
            answer = whole(cluster.generate(*PROMPT, "--seed", 1, "--temperature", 100,
                                            "--ignore-eos", "--max-tokens", 400, "--n", 4,
                                            "--logprobs", 20, "--json"))
            drawn = {token for ids in ids_of(answer) for token in ids}
            self.assertGreater(len(drawn), 200, "nearly every id is drawn")
            self.assertLess(max(drawn), TOKENIZER_IDS)

    def test_a_seeded_request_repeats_whatever_its_neighbours(self):
        with Cluster(coordinator=["--chunk=7"]) as cluster:
            cluster.wait_serving()
            want = ids_of(whole(cluster.generate(*SEEDED)))
            self.assertEqual(len({tuple(ids) for ids in want}), 4, "the choices are all alike")
            unseeded = [cluster.start_stream(*BUSY) for _ in range(3)]
            wait_until(lambda: cluster.status()["requests_in_flight"] == 3, 20, "all run")
            same = [cluster.start_stream(*SEEDED) for _ in range(3)]
            got = [json.loads(client.communicate(timeout=60 * PATIENCE)[0]) for client in same]
            for answer in (whole(cluster.generate(*SEEDED)), *got):
                self.assertEqual(ids_of(answer), want)
            unseeded[0].kill()
            self.assertEqual(ids_of(whole(cluster.generate(*SEEDED, "--no-prefix-cache"))), want)
            for client in unseeded:
                client.kill()
            cluster.wait_idle()


class Preemption(unittest.TestCase):
    def test_changes_nothing_of_an_answer(self):
        # A pool of 12 blocks of 16 tokens; each request grows to 8, in mid-character at any moment.
        asks = [("--prompt", f"{i} stones", "--seed", i, "--ignore-eos", "--max-tokens", 110,
                 "--temperature", 1.2, "--repetition-penalty", 1.3, "--presence-penalty", 0.4,
                 "--frequency-penalty", 0.2, "--logprobs", 2, "--json") for i in range(6)]
        with Cluster(coordinator=["--kv-memory=96KiB", "--context=256"]) as cluster:
            cluster.wait_serving()
            cluster.wait_idle()
            self.assertEqual(cluster.status()["groups"][0]["engine"]["blocks"], 12)
            alone = [whole(cluster.generate(*ask)) for ask in asks]
            self.assertEqual([a["usage"]["num_preemptions"] for a in alone], [0] * len(asks))
            most = 0
            for _ in range(3):
                clients = [cluster.start_stream(*ask) for ask in asks]
                for client, want in zip(clients, alone):
                    out, error = client.communicate(timeout=60 * PATIENCE)
                    self.assertEqual(client.returncode, 0, error)
                    got = json.loads(out)
                    most = max(most, got["usage"]["num_preemptions"])
                    self.assertEqual(apart_from_usage(got), apart_from_usage(want))
            self.assertGreaterEqual(most, 2, "nobody was preempted twice")
            cluster.wait_idle()


class SmallPool(unittest.TestCase):
    """A pool of 8 blocks of 16 tokens behind a window of 64 blocks."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(coordinator=["--kv-memory=64KiB", "--context=1024"])
        cls.cluster.wait_serving()
        cls.cluster.wait_idle()
        status = cls.cluster.status()
        assert status["groups"][0]["engine"]["blocks"] == 8, status

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def ids(self, tokens):
        return ("--ids", json.dumps([65 + i % 26 for i in range(tokens)]))

    def test_the_largest_request_is_told_at_the_start(self):
        engine = self.cluster.status()["groups"][0]["engine"]
        self.assertEqual(engine["max_request_tokens"], 128)
        self.assertIn("largest_request_tokens=128", self.cluster.log("worker-0"))

    def test_a_prompt_that_never_fits_is_refused_at_once_and_holds_nobody_up(self):
        large = [self.cluster.start_stream(*self.ids(n), "--max-tokens", 1) for n in (144, 1000)]
        small = [self.cluster.start_stream(*self.ids(10), "--greedy", "--ignore-eos",
                                           "--max-tokens", 6, "--json") for _ in range(10)]
        for client in large:
            _, error = client.communicate(timeout=20 * PATIENCE)
            self.assertEqual(client.returncode, 1)
            self.assertIn("pool_tokens=128", error.decode())
        for client in small:
            out, error = client.communicate(timeout=20 * PATIENCE)
            self.assertEqual(client.returncode, 0, error)
            self.assertEqual(len(json.loads(out)["ids"]), 6)

    def test_a_request_that_outgrows_the_pool_alone_ends_with_length(self):
        answer = whole(self.cluster.generate(*self.ids(100), "--ignore-eos", "--max-tokens", 500,
                                             "--json"))
        self.assertEqual(answer["finish_reason"], "length")
        self.assertIn(len(answer["ids"]), (28, 29))

    def test_two_that_fit_singly_but_not_together_both_end(self):
        asks = [(*self.ids(60 + i), "--greedy", "--ignore-eos", "--max-tokens", 60, "--json")
                for i in range(2)]
        want = [whole(self.cluster.generate(*ask))["ids"] for ask in asks]
        clients = [self.cluster.start_stream(*ask) for ask in asks]
        got = [json.loads(c.communicate(timeout=60 * PATIENCE)[0])["ids"] for c in clients]
        self.assertEqual(got, want)
        self.cluster.wait_idle()


class Fairness(unittest.TestCase):
    def test_a_running_stream_does_not_freeze_while_a_long_prompt_is_computed(self):
        prompt = ("--ids", json.dumps([65 + i % 26 for i in range(20000)]), "--max-tokens", 1)
        arrivals = []

        def read(stream):
            while os.read(stream.fileno(), 1 << 16):
                arrivals.append(time.monotonic())
        with Cluster(coordinator=["--chunk=128"]) as cluster:
            cluster.wait_serving()
            stream = cluster.start_stream(*BUSY)
            reader = threading.Thread(target=read, args=(stream.stdout,))
            reader.start()
            wait_until(lambda: arrivals, 20, "it streams")
            long = cluster.start_stream(*prompt)
            wait_until(lambda: cluster.status()["requests_in_flight"] == 2, 20, "it is in flight")
            start = time.monotonic()
            # Nobody is forgotten behind it either.
            whole(cluster.generate(*PROMPT, "--max-tokens", 4, "--json"))
            self.assertEqual(long.wait(timeout=120 * PATIENCE), 0)
            end = time.monotonic()
            stream.kill()
            reader.join()
            within = [start, *(t for t in arrivals if start < t < end), end]
            gap = max(later - earlier for earlier, later in zip(within, within[1:]))
            self.assertLess(gap, (end - start) / 3, f"of {end - start:.1f} s")
            cluster.wait_idle()


if __name__ == "__main__":
    unittest.main()
