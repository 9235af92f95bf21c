#!/usr/bin/env python3
"""Counts the cases of one CTest run.

usage: count_results.py CTEST_JUNIT_XML GTEST_XML_FOLDER     prints `PASSED FAILED SKIPPED`

A GoogleTest program counts by its cases, a Python test by its unittest cases, anything else as one.
A program that failed without saying in which case (a crash, a time-out) counts as one failure more.
Reasons of skips go to stderr.
"""
import glob
import os
import re
import sys
import xml.etree.ElementTree as ElementTree


def count_gtest(path):
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            failed += 1
        elif case.get("result") == "skipped":
            skipped += 1
            skip = case.find("skipped")
            lines = (skip.get("message") or "").split("\n") if skip is not None else []
            reason = " ".join(lines[1:]).strip() or "gives no reason"  # the first is the place
            print(f"skipped {case.get('classname')}.{case.get('name')}: {reason}", file=sys.stderr)
        elif case.get("status") == "run":
            passed += 1
    return passed, failed, skipped


def count_unittest(output):
    """None if the output is not that of Python's unittest."""
    ran = re.search(r"^Ran (\d+) tests? in ", output, re.M)
    if not ran:
        return None
    numbers = {word: int(number) for word, number in
               re.findall(r"(failures|errors|skipped)=(\d+)", output[ran.end():])}
    failed = numbers.get("failures", 0) + numbers.get("errors", 0)
    skipped = numbers.get("skipped", 0)
    return int(ran.group(1)) - failed - skipped, failed, skipped


def count(junit_path, gtest_folder):
    total = [0, 0, 0]
    for test in ElementTree.parse(junit_path).getroot().iter("testcase"):
        name, status = test.get("name"), test.get("status")
        reports = glob.glob(os.path.join(gtest_folder, f"{name}.xml"))
        found = None
        try:
            if reports:
                found = count_gtest(reports[0])
        except ElementTree.ParseError:
            pass  # the program died while writing
        if found is None:
            found = count_unittest(test.findtext("system-out") or "")
        if found is None:
            found = (int(status == "run"), int(status == "fail"),
                     int(status in ("notrun", "disabled")))
        elif status == "fail" and found[1] == 0:
            found = (found[0], 1, found[2])
        total = [a + b for a, b in zip(total, found)]
    return total


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(*count(sys.argv[1], sys.argv[2]))
