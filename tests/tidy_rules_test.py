#!/usr/bin/env python3
"""Shows every rule of tidy_test.py a tree that keeps it and trees that break it."""
import unittest

import tidy_test

HEADER = "// What it is.\n#pragma once\n"
# A small tree without a finding.
SOUND = {
    "CMakePresets.json": '{"name": "release"}\n',
    "README.md": "Run `tests/run.sh`, then [read](docs/style.md). build/release/bin/cairn serve\n",
    "docs/style.md": "Style.\n",
    "tests/run.sh": "#!/bin/sh\n",
    "base/CMakeLists.txt": "cairn_library(base SOURCES clock.cc)\n",
    "base/clock.h": HEADER,
    "base/clock.cc": '#include "base/clock.h"\n',
    "tests/base/CMakeLists.txt": "cairn_test(clock_test SOURCES clock_test.cc)\n",
    "tests/base/clock_test.cc": '#include "base/clock.h"\n',
    "cli/CMakeLists.txt": "main.cc\n",
    "cli/main.cc": 'Verb("serve");\n',
}


class TidyRulesTest(unittest.TestCase):
    def breaks(self, message, path, text):
        """The sound tree with `text` in `path` has exactly one kind of finding, this one."""
        found = [item for item in tidy_test.findings({**SOUND, path: text}) if item[0] == path]
        self.assertTrue(any(message in item[2] for item in found), f"{path}: {found}")

    def keeps(self, path, text):
        self.assertEqual([], tidy_test.findings({**SOUND, path: text}))

    def test_a_sound_tree_has_no_finding(self):
        self.assertEqual([], tidy_test.findings(SOUND))

    def test_includes_point_one_way(self):
        for path, target in [("base/clock.cc", "proto/rpc.h"), ("kernels/x.cc", "model/m.h"),
                             ("model/x.cc", "kernels/k.h"), ("coordinator/x.cc", "kernels/k.h"),
                             ("worker/x.cc", "coordinator/c.h"), ("kvstore/x.cc", "model/m.h")]:
            self.breaks("may not include", path, f'#include "{target}"\n')
        self.breaks("only key, policy and client", "worker/x.cc", '#include "kvstore/tier.h"\n')
        self.breaks("needs base alone", "kvstore/key.cc", '#include "proto/rpc.h"\n')
        self.keeps("base/clock.cc", '#include "base/clock.h"\n')

    def test_generated_code_stays_in_facades(self):
        self.breaks("generated", "worker/x.cc", '#include "cairn/v1/cairn.pb.h"\n')
        self.breaks("generated", "worker/x.cc", "#include <grpcpp/grpcpp.h>\n")
        tree = {**SOUND, "worker/CMakeLists.txt": "x_service.cc\n",
                "worker/x_service.cc": "#include <grpcpp/grpcpp.h>\n"}
        self.assertEqual([], list(tidy_test.check_generated_includes(tree)))

    def test_families_are_named_in_one_file(self):
        self.breaks("family", "cli/main.cc", 'Verb("serve");  // for Qwen2\n')
        self.keeps("cli/main.cc", 'Verb("serve");  // as llama.cpp does\n')

    def test_banned_code_is_found_outside_comments_and_strings(self):
        for code in ["throw 1;", "catch (...) {}", "using namespace std;", "std::mutex m;",
                     'getenv("X");', "#include <ranges>", "std::stoi(s);", "atoi(s);",
                     "std::shared_mutex m;"]:
            self.breaks("", "base/clock.cc", f'#include "base/clock.h"\n{code}\n')
        self.keeps("base/clock.cc", '#include "base/clock.h"\n'
                                    '// throw std::mutex getenv\nLog("throw getenv(");\n')
        self.keeps("tests/base/clock_test.cc", '#include "base/clock.h"\nstd::mutex m;\n')

    def test_banned_text_is_found_in_comments_too(self):
        # Joined here, so that this file does not break the rule it tests.
        for text in ["TO" + "DO: later", "NOL" + "INT", "KV p" + "age", "is" + "sue #12",
                     "see sha" + "red/x.md", "a PO" + "C", "for n" + "ow"]:
            self.breaks("", "base/clock.cc", f'#include "base/clock.h"\n// {text}\n')

    def test_the_build_chooses_files(self):
        self.breaks("#if", "base/clock.cc", '#include "base/clock.h"\n#ifdef X\n#endif\n')

    def test_names_say_something(self):
        for name in ["utils", "string_util", "test_helpers", "common", "block_manager"]:
            self.breaks("says nothing", f"base/{name}.h", HEADER)
        self.assertEqual([], list(tidy_test.check_names({"base/utility_rate.h": HEADER})))

    def test_headers_are_used_and_open_with_what_they_are(self):
        self.breaks("no file includes", "base/unused.h", HEADER)
        self.breaks("pragma once", "base/clock.h", "// What it is.\n")
        self.breaks("opens with", "base/clock.h", "#pragma once\n")

    def test_a_source_includes_its_own_header_first(self):
        self.breaks("own header", "base/clock.cc",
                    '#include <string>\n#include "base/clock.h"\n')
        self.breaks("own header", "base/clock.cc", "int x;\n")

    def test_every_source_is_built(self):
        self.breaks("no CMakeLists", "base/lost.cc", "\n")
        self.breaks("no CMakeLists", "base/other_clock.cc", "\n")
        self.breaks("no CMakeLists", "tests/base/lost_test.cc", "\n")

    def test_every_module_is_reached_by_a_test(self):
        tree = {**SOUND, "base/CMakeLists.txt": "clock.cc queue.cc\n",
                "base/queue.h": HEADER, "base/queue.cc": '#include "base/queue.h"\n'}
        self.assertEqual([("base/queue.cc", 1, "no test reaches base/queue.h")],
                         tidy_test.findings(tree))
        tree["base/clock.cc"] = '#include "base/clock.h"\n#include "base/queue.h"\n'
        self.assertEqual([], tidy_test.findings(tree))

    def test_layout(self):
        self.breaks("columns", "base/clock.cc", "x" * 101 + "\n")
        self.breaks("trailing", "base/clock.cc", "int x; \n")
        self.breaks("tab", "base/clock.cc", "\tint x;\n")
        self.breaks("newline", "base/clock.cc", "int x;")
        self.breaks("divide", "base/clock.cc", "\n" * 600)

    def test_the_readme_names_what_exists(self):
        self.breaks("no deploy/x.sh", "README.md", "deploy/x.sh\n")
        self.breaks("no preset", "README.md", "cmake --preset fast\n")
        self.breaks("no verb", "README.md", "build/release/bin/cairn fly\n")
        self.breaks("leads nowhere", "README.md", "[here](docs/lost.md)\n")

    def test_numbers_with_separators_do_not_hide_code(self):
        self.breaks("getenv", "base/clock.cc", "int x = 1'000; getenv(n); int y = 2'000;\n")


if __name__ == "__main__":
    unittest.main()
