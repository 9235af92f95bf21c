#!/usr/bin/env python3
"""What tests/run.sh adds up must not lose a failure."""
import contextlib
import io
import os
import tempfile
import unittest

import count_results

GTEST = """<testsuites><testsuite>
<testcase name="Passes" status="run" result="completed" classname="A"/>
<testcase name="Fails" status="run" result="completed" classname="A">
  <failure message="m"/></testcase>
<testcase name="Skips" status="run" result="skipped" classname="A">
  <skipped message="a_test.cc:4&#x0A;no AVX-512"/></testcase>
<testcase name="DISABLED_X" status="notrun" result="suppressed" classname="A"/>
</testsuite></testsuites>"""


class CountResultsTest(unittest.TestCase):
    def count(self, status, output="", gtest=None):
        """The sums of a run of one test; its skips' reasons go to self.reasons."""
        with tempfile.TemporaryDirectory() as folder:
            junit = os.path.join(folder, "junit.xml")
            with open(junit, "w", encoding="utf-8") as file:
                file.write(f'<testsuite><testcase name="a_test" status="{status}">'
                           f"<system-out>{output}</system-out></testcase></testsuite>")
            if gtest is not None:
                with open(os.path.join(folder, "a_test.xml"), "w", encoding="utf-8") as file:
                    file.write(gtest)
            reasons = io.StringIO()
            with contextlib.redirect_stderr(reasons):
                result = count_results.count(junit, folder)
            self.reasons = reasons.getvalue()
            return result

    def test_cases_of_a_google_test_count_and_skips_say_why(self):
        self.assertEqual([1, 1, 1], self.count("fail", gtest=GTEST))
        self.assertEqual("skipped A.Skips: no AVX-512\n", self.reasons)

    def test_a_program_that_dies_is_a_failure(self):
        self.assertEqual([0, 1, 0], self.count("fail"))
        self.assertEqual([0, 1, 0], self.count("fail", gtest="<testsuites><cut sho"))
        sound = GTEST.replace('<failure message="m"/>', "")
        self.assertEqual([2, 1, 1], self.count("fail", gtest=sound))

    def test_cases_of_a_python_test_count(self):
        self.assertEqual([3, 0, 0], self.count("run", "...\nRan 3 tests in 0.1s\n\nOK\n"))
        self.assertEqual([1, 3, 2], self.count(
            "fail", "Ran 6 tests in 1s\n\nFAILED (failures=2, errors=1, skipped=2)\n"))

    def test_anything_else_counts_as_one(self):
        self.assertEqual([1, 0, 0], self.count("run", "fine"))
        self.assertEqual([0, 0, 1], self.count("notrun"))


if __name__ == "__main__":
    unittest.main()
