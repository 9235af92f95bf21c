#!/usr/bin/env python3
"""Speed side by side with llama.cpp: same file, same threads, alternating runs, medians.

usage: compare_llama.py --model F.gguf --peer PATH/llama-bench [--cairn build/release/bin/cairn]
                        [--threads 2] [--rounds 5] [--prompt 512] [--gen 128] [--depth 0]
                        [--variant "FLAGS" ...] [--peer-flags "-fa 1"]

Each round runs the peer and every variant of `cairn bench` once, one after the other, so that what
else the machine does hits all alike. Prints a Markdown table: median [least..most] and the ratio
to the peer. Default variants: the default numerics, `--numerics fast`, and two ranks of one thread.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys


def peer_run(args):
    rates = {}
    tests = []
    if args.prompt:
        tests.append(["-p", str(args.prompt), "-n", "0"])
    if args.gen:
        tests.append(["-p", "0", "-n", str(args.gen)])
    for test in tests:
        command = [args.peer, "-m", args.model, "-t", str(args.threads), "-r", "1", "-o", "json",
                   "-d", str(args.depth), *test, *shlex.split(args.peer_flags)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for row in json.loads(out):
            rates["prefill" if row["n_prompt"] else "decode"] = row["avg_ts"]
    return rates


def cairn_run(args, flags):
    command = [args.cairn, "bench", "--model", args.model, "--json", "--repeat", "1",
               "--prompt", str(args.prompt), "--gen", str(args.gen), "--depth", str(args.depth),
               *shlex.split(flags)]
    out = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rates = {}
    if args.prompt:
        rates["prefill"] = out["prefill_tokens_per_s"]
    if args.gen:
        rates["decode"] = out["decode_tokens_per_s"]
        args.bandwidth_share.setdefault(flags, []).append(out["decode_share_of_memory_bandwidth"])
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--cairn", default="build/release/bin/cairn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--variant", action="append")
    parser.add_argument("--peer-flags", default="-fa 1")
    args = parser.parse_args()
    args.bandwidth_share = {}
    variants = args.variant or [f"--threads {args.threads}",
                                f"--threads {args.threads} --numerics fast",
                                f"--tp {args.threads} --threads 1"]
    results = {}
    for _ in range(args.rounds):
        runs = [("llama.cpp", peer_run(args))]
        runs += [(f"cairn {flags}", cairn_run(args, flags)) for flags in variants]
        for name, rates in runs:
            for what, rate in rates.items():
                results.setdefault((what, name), []).append(rate)
    print(f"depth {args.depth}, {args.threads} threads, {args.rounds} alternating rounds, "
          "tokens/s\n")
    print("| what | engine | median | range | ratio |\n|---|---|---|---|---|")
    for (what, name), rates in sorted(results.items(), key=lambda item: item[0][0]):
        median = statistics.median(rates)
        ratio = median / statistics.median(results[(what, "llama.cpp")])
        size = args.prompt if what == "prefill" else args.gen
        print(f"| {what} {size} | {name} | {median:.1f} | {min(rates):.1f}..{max(rates):.1f} "
              f"| {ratio:.2f}x |")
    for flags, shares in args.bandwidth_share.items():
        print(f"\ncairn {flags}: decode reads {100 * statistics.median(shares):.0f} % of the "
              "measured memory bandwidth")
    return 0


if __name__ == "__main__":
    sys.exit(main())
