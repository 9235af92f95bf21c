// Global functions, and the methods of values that are not text.
#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "model/jinja_functions.h"
#include "model/jinja_run.h"

namespace cairn {
namespace {

using Value = absl::StatusOr<JinjaValue>;

constexpr int64_t kMaxRangeItems = 100'000;  // the sandbox's own limit

Value Range(JinjaRun& run, const JinjaValue&, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(int64_t start, arguments.Int(0, 0));
  int64_t stop = 0;
  ASSIGN_OR_RETURN(const int64_t step, arguments.Int(2, 1));
  if (arguments.has(1)) {
    ASSIGN_OR_RETURN(stop, arguments.Int(1, 0));
  } else {
    stop = std::exchange(start, 0);
  }
  if (step == 0) return absl::InvalidArgumentError("range() arg 3 must not be zero");
  const JinjaInt distance = step > 0 ? JinjaInt{stop} - start : JinjaInt{start} - stop;
  const JinjaInt stride = step > 0 ? JinjaInt{step} : -JinjaInt{step};
  const JinjaInt count = distance > 0 ? (distance + stride - 1) / stride : 0;
  if (count > kMaxRangeItems) {
    return absl::ResourceExhaustedError(absl::StrCat("range is too big: limit=", kMaxRangeItems));
  }
  RETURN_IF_ERROR(run.Charge(static_cast<int64_t>(count)));
  std::vector<JinjaValue> items;
  for (JinjaInt i = 0; i < count; ++i) items.push_back(JinjaValue::Int(start + i * step));
  return JinjaValue::Make({.kind = JinjaList::Kind::kRange,
                           .items = std::move(items),
                           .start = start,
                           .stop = stop,
                           .step = step});
}

// The arguments of dict(...) and namespace(...): mappings, then names.
absl::StatusOr<std::vector<std::pair<JinjaValue, JinjaValue>>> Members(
    JinjaRun& run, const JinjaArguments& arguments) {
  std::vector<std::pair<JinjaValue, JinjaValue>> members;
  for (const JinjaValue& source : arguments.positional) {
    if (source.is_dict()) {
      members.insert(members.end(), source.dict().items.begin(), source.dict().items.end());
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<JinjaValue> pairs, run.Iterate(source));
    for (const JinjaValue& pair : pairs) {
      ASSIGN_OR_RETURN(const std::vector<JinjaValue> items, run.Iterate(pair));
      if (items.size() != 2) return absl::InvalidArgumentError("dict wants pairs");
      members.emplace_back(items[0], items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    members.emplace_back(JinjaValue::Scaffolding(name), value);
  }
  return members;
}

Value Dict(JinjaRun& run, const JinjaValue&, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(auto members, Members(run, arguments.rest));
  return JinjaValue::Dict(std::move(members));
}

Value NewNamespace(JinjaRun& run, const JinjaValue&, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const auto members, Members(run, arguments.rest));
  std::vector<std::pair<std::string, JinjaValue>> named;
  for (const auto& [key, value] : members) {
    const std::string name = JinjaStr(key).bytes();
    const auto same = std::find_if(named.begin(), named.end(),
                                   [&](const auto& member) { return member.first == name; });
    if (same != named.end()) {
      same->second = value;
    } else {
      named.emplace_back(name, value);
    }
  }
  return run.NewNamespace(std::move(named));
}

Value Joiner(JinjaRun& run, const JinjaValue&, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(JinjaText separator, arguments.Text(0, ", "));
  return run.NewJoiner(std::move(separator));
}

Value Cycler(JinjaRun& run, const JinjaValue&, const JinjaBound& arguments) {
  return run.NewCycler(arguments.rest.positional);
}

Value RaiseException(JinjaRun& run, const JinjaValue&, const JinjaBound& arguments) {
  return run.Raise(JinjaStr(arguments[0]).view());
}

Value StrftimeNow(JinjaRun& run, const JinjaValue&, const JinjaBound& arguments) {
  constexpr size_t kMaxFormatBytes = 256;
  ASSIGN_OR_RETURN(const JinjaText format, arguments.Text(0, ""));
  if (format.size() > kMaxFormatBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("strftime_now: format is too long: limit=", kMaxFormatBytes));
  }
  // A local time without a zone: Python writes nothing for these two.
  const std::string pattern =
      absl::StrReplaceAll(format.bytes(), {{"%%", "%%"}, {"%f", "000000"}, {"%z", ""}, {"%Z", ""}});
  const absl::CivilSecond now = run.now();
  std::tm time = {};
  time.tm_sec = now.second();
  time.tm_min = now.minute();
  time.tm_hour = now.hour();
  time.tm_mday = now.day();
  time.tm_mon = now.month() - 1;
  time.tm_year = static_cast<int>(now.year() - 1900);
  time.tm_wday = (static_cast<int>(absl::GetWeekday(now)) + 1) % 7;
  time.tm_yday = absl::GetYearDay(now) - 1;
  char buffer[8192];
  const size_t bytes = std::strftime(buffer, sizeof(buffer), pattern.c_str(), &time);
  return JinjaValue::Scaffolding(std::string(buffer, bytes));
}

Value DictItems(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  JinjaList list{.kind = JinjaList::Kind::kItems, .items = {}};
  for (const auto& [key, value] : self.dict().items) {
    ASSIGN_OR_RETURN(JinjaValue pair, JinjaValue::Tuple({key, value}));
    list.items.push_back(std::move(pair));
  }
  return JinjaValue::Make(std::move(list));
}

Value DictKeys(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  JinjaList list{.kind = JinjaList::Kind::kKeys, .items = {}};
  for (const auto& item : self.dict().items) list.items.push_back(item.first);
  return JinjaValue::Make(std::move(list));
}

Value DictValues(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  JinjaList list{.kind = JinjaList::Kind::kValues, .items = {}};
  for (const auto& item : self.dict().items) list.items.push_back(item.second);
  return JinjaValue::Make(std::move(list));
}

Value DictGet(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  const JinjaValue* value = self.dict().Find(arguments[0]);
  if (value != nullptr) return *value;
  return arguments.has(1) ? arguments[1] : JinjaValue();
}

Value Copy(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return self; }

Value ListCount(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  RETURN_IF_ERROR(run.Charge(self.weight()));
  const std::vector<JinjaValue>& items = self.list().items;
  return JinjaValue::Int(std::count_if(items.begin(), items.end(), [&](const JinjaValue& item) {
    return JinjaEquals(item, arguments[0]);
  }));
}

Value ListIndex(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  RETURN_IF_ERROR(run.Charge(self.weight()));
  const std::vector<JinjaValue>& items = self.list().items;
  const auto found = std::find_if(items.begin(), items.end(), [&](const JinjaValue& item) {
    return JinjaEquals(item, arguments[0]);
  });
  if (found != items.end()) return JinjaValue::Int(found - items.begin());
  return absl::InvalidArgumentError("the value is not in the list");
}

Value LoopCycle(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return run.LoopCycle(self, arguments.rest.positional);
}
Value LoopChanged(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return run.LoopChanged(self, arguments.rest.positional);
}
Value CyclerNext(JinjaRun& run, const JinjaValue& self, const JinjaBound&) {
  return run.CyclerNext(self);
}
Value CyclerReset(JinjaRun& run, const JinjaValue& self, const JinjaBound&) {
  return run.CyclerReset(self);
}

constexpr JinjaFunction kGlobals[] = {
    {"cycler", "*", 0, Cycler},
    {"dict", "*", 0, Dict},
    {"joiner", "sep", 0, Joiner},
    {"namespace", "*", 0, NewNamespace},
    {"raise_exception", "message", 1, RaiseException},
    {"range", "start stop step", 1, Range},
    {"strftime_now", "format", 1, StrftimeNow},
};

constexpr JinjaFunction kDictMethods[] = {
    {"copy", "", 0, Copy},     {"get", "key default", 1, DictGet}, {"items", "", 0, DictItems},
    {"keys", "", 0, DictKeys}, {"values", "", 0, DictValues},
};

constexpr JinjaFunction kListMethods[] = {
    {"copy", "", 0, Copy},
    {"count", "value", 1, ListCount},
    {"index", "value", 1, ListIndex},
};

constexpr JinjaFunction kLoopMethods[] = {
    {"changed", "*", 0, LoopChanged},
    {"cycle", "*", 0, LoopCycle},
};

constexpr JinjaFunction kCyclerMethods[] = {
    {"next", "", 0, CyclerNext},
    {"reset", "", 0, CyclerReset},
};

}  // namespace

const JinjaFunction* FindJinjaGlobal(std::string_view name) { return FindFunction(kGlobals, name); }
const JinjaFunction* FindDictMethod(std::string_view name) {
  return FindFunction(kDictMethods, name);
}
const JinjaFunction* FindListMethod(std::string_view name) {
  return FindFunction(kListMethods, name);
}
const JinjaFunction* FindLoopMethod(std::string_view name) {
  return FindFunction(kLoopMethods, name);
}
const JinjaFunction* FindCyclerMethod(std::string_view name) {
  return FindFunction(kCyclerMethods, name);
}

}  // namespace cairn
