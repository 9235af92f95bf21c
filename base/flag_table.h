// Flags of a program or of one of its verbs: a table that parses `--name value` and `--name=value`,
// checks ranges, and prints help. A flag that is not in the table is an error, never ignored.
//
// Each flag writes into a variable of the caller's options struct, whose value before Parse is the
// default. A switch takes no value (`--json`), or one after `=` (`--json=false`).
// Thread: one.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cairn {

class FlagTable {
 public:
  // A line of its own above the flags that follow, in Help.
  void Section(std::string title);

  void Add(std::string name, bool* to, std::string help);
  void Add(std::string name, std::string* to, std::string value_name, std::string help);
  // One of `choices`.
  void AddChoice(std::string name, std::string* to, std::vector<std::string> choices,
                 std::string help);
  void AddChoice(std::string name, int32_t* to, const std::vector<int32_t>& choices,
                 std::string help);
  void Add(std::string name, std::optional<std::string>* to, std::string value_name,
           std::string help);
  // May be given several times.
  void Add(std::string name, std::vector<std::string>* to, std::string value_name,
           std::string help);
  void Add(std::string name, int32_t* to, int32_t low, int32_t high, std::string help);
  void Add(std::string name, float* to, float low, float high, std::string help);
  // Bytes with an optional unit: 4096, 64KiB, 2.5GiB.
  void AddBytes(std::string name, int64_t* to, std::string help);
  // host:port, with the port in 1..65535; see ParseHostPort.
  void AddHostPort(std::string name, std::string* to, std::string help);
  // Anything else: `parse` reads the text.
  void AddParsed(std::string name, std::string value_name, std::string help,
                 std::function<absl::Status(const std::string&)> parse);

  // Fills the variables from `args` (without the program's name). Returns what is no flag, in
  // order; after "--" nothing is one. Errors: InvalidArgument in one line: the flag, its value and
  // what is allowed.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& args) const;

  // The table, one flag to a line or two.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;        // empty: a section, whose title is `help`
    std::string value_name;  // empty: a switch
    std::string help;
    std::function<absl::Status(const std::string&)> parse;
  };
  // `value`: the default.
  void AddOneOf(std::string name, const std::string& value, std::string help,
                std::vector<std::string> choices, std::function<void(const std::string&)> set);
  absl::Status Set(const std::string& name, const std::optional<std::string>& value) const;
  const Flag* Find(const std::string& name) const;

  std::vector<Flag> flags_;
};

// Reads a command line with its table, to which it adds --help. `usage`: the first lines of the
// help, which goes to stdout if it is asked for; `done` then says that there is nothing more to do.
// `max_rest`: how many arguments that are no flags it takes. Errors: those of Parse;
// InvalidArgument naming the first argument too many.
struct CommandLine {
  bool done = false;
  std::vector<std::string> rest{};
};
absl::StatusOr<CommandLine> ReadCommandLine(const std::string& usage, FlagTable* flags,
                                            const std::vector<std::string>& args, size_t max_rest);

// "2.5GiB" as bytes. Errors: InvalidArgument.
absl::StatusOr<int64_t> ParseBytes(const std::string& text);

}  // namespace cairn
