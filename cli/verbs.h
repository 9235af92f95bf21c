// The verbs of the command line. Each takes the arguments after its name and returns the exit
// status: 0; 1 when it was refused or failed, after one line on stderr; 2 for a wrong command line.
// Thread: the main thread.
#pragma once

#include <string>
#include <vector>

#include "base/flag_table.h"
#include "base/status.h"

namespace cairn {

using Arguments = std::vector<std::string>;

int RunServe(const Arguments& arguments);
int RunChat(const Arguments& arguments);
int RunGenerate(const Arguments& arguments);
int RunStatus(const Arguments& arguments);
int RunDrain(const Arguments& arguments);
int RunInspect(const Arguments& arguments);
int RunTokenize(const Arguments& arguments);
int RunDetokenize(const Arguments& arguments);
int RunRender(const Arguments& arguments);
int RunLogits(const Arguments& arguments);
int RunBench(const Arguments& arguments);

inline constexpr char kDefaultEndpoint[] = "127.0.0.1:7070";
inline constexpr int kExitRefused = 1, kExitUsage = 2;

// Reads the arguments of a verb with its table, to which it adds --help. Gives the exit status when
// there is nothing more to do: help was printed, or the command line is wrong (said on stderr).
struct ParsedVerb {
  bool done = false;
  int exit_status = 0;
  Arguments rest{};
};
// `usage`: the first lines of the help. `max_rest`: how many arguments that are no flags it takes.
ParsedVerb ParseVerb(const std::string& usage, FlagTable* flags, const Arguments& arguments,
                     size_t max_rest);

// One line on stderr; returns kExitRefused or kExitUsage.
int ReportRefusal(const absl::Status& status);
int ReportUsage(const std::string& message);

}  // namespace cairn
