#include "base/flag_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/network_address.h"

namespace cairn {
namespace {

constexpr size_t kHelpColumn = 30;
constexpr size_t kHelpWidth = 96;

absl::Status BadValue(const std::string& value, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat("'", value, "' is not ", allowed));
}

// `text` in lines that begin at kHelpColumn.
std::string Wrapped(const std::string& text) {
  std::string out;
  size_t column = kHelpColumn;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const size_t length = space - at;
    if (column > kHelpColumn && column + 1 + length > kHelpWidth) {
      out += '\n' + std::string(kHelpColumn, ' ');
      column = kHelpColumn;
    } else if (column > kHelpColumn) {
      out += ' ';
      ++column;
    }
    out.append(text, at, length);
    column += length;
    at = space + 1;
  }
  return out;
}

}  // namespace

void FlagTable::Section(std::string title) { flags_.push_back({"", "", std::move(title), {}}); }

void FlagTable::AddParsed(std::string name, std::string value_name, std::string help,
                          std::function<absl::Status(const std::string&)> parse) {
  CHECK(Find(name) == nullptr) << "flag twice: " << name;
  flags_.push_back({std::move(name), std::move(value_name), std::move(help), std::move(parse)});
}

void FlagTable::Add(std::string name, bool* to, std::string help) {
  AddParsed(std::move(name), "", std::move(help), [to](const std::string& value) {
    if (value != "true" && value != "false") return BadValue(value, "true or false");
    *to = value == "true";
    return absl::OkStatus();
  });
}

void FlagTable::Add(std::string name, std::string* to, std::string value_name, std::string help) {
  if (!to->empty()) absl::StrAppend(&help, " (default ", *to, ")");
  AddParsed(std::move(name), std::move(value_name), std::move(help),
            [to](const std::string& value) {
              *to = value;
              return absl::OkStatus();
            });
}

void FlagTable::AddOneOf(std::string name, const std::string& value, std::string help,
                         std::vector<std::string> choices,
                         std::function<void(const std::string&)> set) {
  absl::StrAppend(&help, " (default ", value, ")");
  std::string allowed = absl::StrJoin(choices, "|");
  AddParsed(std::move(name), allowed, std::move(help),
            [allowed, choices = std::move(choices), set = std::move(set)](const std::string& text) {
              if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
                return BadValue(text, allowed);
              }
              set(text);
              return absl::OkStatus();
            });
}

void FlagTable::AddChoice(std::string name, std::string* to, std::vector<std::string> choices,
                          std::string help) {
  AddOneOf(std::move(name), *to, std::move(help), std::move(choices),
           [to](const std::string& text) { *to = text; });
}

void FlagTable::AddChoice(std::string name, int32_t* to, const std::vector<int32_t>& choices,
                          std::string help) {
  std::vector<std::string> texts;
  for (const int32_t choice : choices) texts.push_back(absl::StrCat(choice));
  AddOneOf(std::move(name), absl::StrCat(*to), std::move(help), std::move(texts),
           [to](const std::string& text) { CHECK(absl::SimpleAtoi(text, to)); });
}

void FlagTable::Add(std::string name, std::optional<std::string>* to, std::string value_name,
                    std::string help) {
  AddParsed(std::move(name), std::move(value_name), std::move(help),
            [to](const std::string& value) {
              *to = value;
              return absl::OkStatus();
            });
}

void FlagTable::Add(std::string name, std::vector<std::string>* to, std::string value_name,
                    std::string help) {
  AddParsed(std::move(name), std::move(value_name), std::move(help),
            [to](const std::string& value) {
              to->push_back(value);
              return absl::OkStatus();
            });
}

void FlagTable::Add(std::string name, int32_t* to, int32_t low, int32_t high, std::string help) {
  absl::StrAppend(&help, " (default ", *to, ")");
  AddParsed(std::move(name), "N", std::move(help), [to, low, high](const std::string& value) {
    int32_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < low || number > high) {
      return BadValue(value, absl::StrCat("a whole number in ", low, "..", high));
    }
    *to = number;
    return absl::OkStatus();
  });
}

void FlagTable::Add(std::string name, float* to, float low, float high, std::string help) {
  absl::StrAppend(&help, " (default ", *to, ")");
  AddParsed(std::move(name), "X", std::move(help), [to, low, high](const std::string& value) {
    float number = 0;
    if (!absl::SimpleAtof(value, &number) || !(number >= low && number <= high)) {
      return BadValue(value, absl::StrCat("a number in ", low, "..", high));
    }
    *to = number;
    return absl::OkStatus();
  });
}

void FlagTable::AddBytes(std::string name, int64_t* to, std::string help) {
  AddParsed(std::move(name), "BYTES", std::move(help), [to](const std::string& value) {
    ASSIGN_OR_RETURN(*to, ParseBytes(value));
    return absl::OkStatus();
  });
}

void FlagTable::AddHostPort(std::string name, std::string* to, std::string help) {
  if (!to->empty()) absl::StrAppend(&help, " (default ", *to, ")");
  AddParsed(std::move(name), "HOST:PORT", std::move(help), [to](const std::string& value) {
    RETURN_IF_ERROR(ParseHostPort(value).status());
    *to = value;
    return absl::OkStatus();
  });
}

const FlagTable::Flag* FlagTable::Find(const std::string& name) const {
  for (const Flag& flag : flags_) {
    if (!flag.name.empty() && flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status FlagTable::Set(const std::string& name,
                            const std::optional<std::string>& value) const {
  const Flag* flag = Find(name);
  if (flag == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name, ": see --help"));
  }
  const bool is_switch = flag->value_name.empty();
  if (!value.has_value() && !is_switch) {
    return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
  }
  return Annotate(flag->parse(value.value_or("true")), absl::StrCat("--", name));
}

absl::StatusOr<std::vector<std::string>> FlagTable::Parse(
    const std::vector<std::string>& args) const {
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") {
      rest.insert(rest.end(), args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    if (arg.size() < 3 || arg.compare(0, 2, "--") != 0) {
      rest.push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(2, equals == arg.npos ? arg.npos : equals - 2);
    std::optional<std::string> value;
    if (equals != arg.npos) value = arg.substr(equals + 1);
    const Flag* flag = Find(name);
    if (!value.has_value() && flag != nullptr && !flag->value_name.empty() && i + 1 < args.size()) {
      value = args[++i];
    }
    RETURN_IF_ERROR(Set(name, value));
  }
  return rest;
}

std::string FlagTable::Help() const {
  std::string out;
  for (const Flag& flag : flags_) {
    if (flag.name.empty()) {
      absl::StrAppend(&out, "\n", flag.help, flag.help.empty() ? "" : "\n");
      continue;
    }
    std::string head = absl::StrCat("  --", flag.name);
    if (!flag.value_name.empty()) absl::StrAppend(&head, " ", flag.value_name);
    if (head.size() + 2 > kHelpColumn) {
      head += '\n' + std::string(kHelpColumn, ' ');
    } else {
      head.resize(kHelpColumn, ' ');
    }
    absl::StrAppend(&out, head, Wrapped(flag.help), "\n");
  }
  return out;
}

absl::StatusOr<CommandLine> ReadCommandLine(const std::string& usage, FlagTable* flags,
                                            const std::vector<std::string>& args, size_t max_rest) {
  bool help = false;
  flags->Section("");
  flags->Add("help", &help, "print this");
  const auto end = std::find(args.begin(), args.end(), "--");
  // Whatever else is wrong.
  if (std::any_of(args.begin(), end,
                  [](const std::string& arg) { return arg == "--help" || arg == "-h"; })) {
    std::printf("%s\n%s", usage.c_str(), flags->Help().c_str());
    return CommandLine{.done = true};
  }
  CommandLine line;
  ASSIGN_OR_RETURN(line.rest, flags->Parse(args));
  if (line.rest.size() > max_rest) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", line.rest[max_rest], "'"));
  }
  return line;
}

absl::StatusOr<int64_t> ParseBytes(const std::string& text) {
  const size_t unit_at = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string unit = text.substr(unit_at);
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  if (unit == "KiB") scale = 1024.0;
  if (unit == "MiB") scale = 1024.0 * 1024;
  if (unit == "GiB") scale = 1024.0 * 1024 * 1024;
  if (unit == "TiB") scale = 1024.0 * 1024 * 1024 * 1024;
  double number = 0;
  if (scale == 0 || !absl::SimpleAtod(text.substr(0, unit_at), &number) ||
      !(number * scale < 9e18)) {
    return BadValue(text, "a size such as 4096, 64KiB or 2.5GiB");
  }
  return static_cast<int64_t>(std::llround(number * scale));
}

}  // namespace cairn
