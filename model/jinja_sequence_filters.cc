// Filters over sequences and mappings.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "model/jinja_filters.h"
#include "model/jinja_run.h"

namespace cairn {
namespace {

using Value = absl::StatusOr<JinjaValue>;
using Values = std::vector<JinjaValue>;

Value Length(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  if (self.is_undefined()) return JinjaValue::Int(0);
  if (self.is_text()) {
    return JinjaValue::Int(static_cast<JinjaInt>(CharacterStarts(self.text().view()).size()) - 1);
  }
  if (self.is_list()) return JinjaValue::Int(static_cast<JinjaInt>(self.list().items.size()));
  if (self.is_dict()) return JinjaValue::Int(static_cast<JinjaInt>(self.dict().items.size()));
  return absl::InvalidArgumentError(
      absl::StrFormat("object of type '%s' has no len()", std::string(self.type_name())));
}

Value Default(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  const bool missing = self.is_undefined() || (arguments.Flag(1, false) && !self.truthy());
  if (!missing) return self;
  return arguments.has(0) ? arguments[0] : JinjaValue::Scaffolding("");
}

Value First(JinjaRun& run, const JinjaValue& self, const JinjaBound&) {
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  if (!items.empty()) return items.front();
  return JinjaValue::MakeUndefined("No first item, sequence was empty.");
}

Value Last(JinjaRun& run, const JinjaValue& self, const JinjaBound&) {
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  if (!items.empty()) return items.back();
  return JinjaValue::MakeUndefined("No last item, sequence was empty.");
}

Value ToList(JinjaRun& run, const JinjaValue& self, const JinjaBound&) {
  ASSIGN_OR_RETURN(Values items, run.Iterate(self));
  return JinjaValue::List(std::move(items));
}

Value Reverse(JinjaRun& run, const JinjaValue& self, const JinjaBound&) {
  if (self.is_text()) {
    return JinjaSlice(self, JinjaValue(), JinjaValue(), JinjaValue::Int(-1));
  }
  ASSIGN_OR_RETURN(Values items, run.Iterate(self));
  std::reverse(items.begin(), items.end());
  return JinjaValue::List(std::move(items));
}

Value Items(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  Values pairs;
  if (self.is_undefined()) return JinjaValue::List(std::move(pairs));
  if (!self.is_dict()) {
    return absl::InvalidArgumentError("Can only get item pairs from a mapping.");
  }
  for (const auto& [key, value] : self.dict().items) {
    ASSIGN_OR_RETURN(JinjaValue pair, JinjaValue::Tuple({key, value}));
    pairs.push_back(std::move(pair));
  }
  return JinjaValue::List(std::move(pairs));
}

// Gets "a.b.0" of an item; without a path the item itself.
class PathGetter {
 public:
  // Errors: InvalidArgument if `attribute` is neither a text nor an integer.
  static absl::StatusOr<PathGetter> Create(const JinjaBound& arguments, size_t place) {
    PathGetter getter;
    if (!arguments.has(place) || arguments[place].is_none()) return getter;
    const JinjaValue& attribute = arguments[place];
    if (attribute.is_int()) {
      getter.path_.push_back(attribute);
      return getter;
    }
    if (!attribute.is_text()) {
      return absl::InvalidArgumentError("attribute must be a str or an integer");
    }
    for (const absl::string_view part : absl::StrSplit(attribute.text().bytes(), '.')) {
      int64_t index = 0;
      const bool is_index =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
      for (const char c : is_index ? part : "") index = index * 10 + (c - '0');
      getter.path_.push_back(is_index ? JinjaValue::Int(index)
                                      : JinjaValue::Scaffolding(std::string(part)));
    }
    return getter;
  }

  void set_when_missing(JinjaValue value) { when_missing_ = std::move(value); }

  Value Get(JinjaRun& run, JinjaValue item) const {
    for (const JinjaValue& part : path_) {
      ASSIGN_OR_RETURN(item, run.Item(item, part));
      if (item.is_undefined() && when_missing_.has_value()) item = *when_missing_;
    }
    return item;
  }

 private:
  Values path_;
  std::optional<JinjaValue> when_missing_;
};

JinjaValue IgnoreCase(const JinjaValue& value) {
  return value.is_text() ? JinjaValue::Text(LowerText(value.text())) : value;
}

// An item with what it is sorted by.
struct Keyed {
  JinjaValue key;
  JinjaValue item;
};

absl::StatusOr<std::vector<Keyed>> MakeKeyed(JinjaRun& run, const JinjaValue& self,
                                             const PathGetter& getter, bool case_sensitive) {
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  std::vector<Keyed> keyed;
  for (const JinjaValue& item : items) {
    ASSIGN_OR_RETURN(JinjaValue key, getter.Get(run, item));
    RETURN_IF_ERROR(run.Charge(key.weight() + 16));  // Sorting looks at each several times.
    keyed.push_back({case_sensitive ? key : IgnoreCase(key), item});
  }
  return keyed;
}

absl::Status SortKeyed(std::vector<Keyed>& keyed, bool reverse) {
  absl::Status status;
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    const absl::StatusOr<bool> less = reverse ? JinjaLess(b.key, a.key) : JinjaLess(a.key, b.key);
    if (!less.ok()) status = less.status();
    return less.ok() && *less;
  });
  return status;
}

Value Sort(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  if (arguments.has(2) && arguments[2].is_text() &&
      arguments[2].text().bytes().find(',') != std::string::npos) {
    return absl::UnimplementedError("sort by several attributes is not supported");
  }
  ASSIGN_OR_RETURN(const PathGetter getter, PathGetter::Create(arguments, 2));
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   MakeKeyed(run, self, getter, arguments.Flag(1, false)));
  RETURN_IF_ERROR(SortKeyed(keyed, arguments.Flag(0, false)));
  Values items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return JinjaValue::List(std::move(items));
}

Value DictSort(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaText by, arguments.Text(1, "key"));
  if (by.bytes() != "key" && by.bytes() != "value") {
    return absl::InvalidArgumentError("You can only sort by either \"key\" or \"value\"");
  }
  if (!self.is_dict()) return absl::InvalidArgumentError("dictsort wants a mapping");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.dict().items) {
    const JinjaValue& sorted_by = by.bytes() == "key" ? key : value;
    RETURN_IF_ERROR(run.Charge(sorted_by.weight() + 16));
    ASSIGN_OR_RETURN(JinjaValue pair, JinjaValue::Tuple({key, value}));
    keyed.push_back({arguments.Flag(0, false) ? sorted_by : IgnoreCase(sorted_by), pair});
  }
  RETURN_IF_ERROR(SortKeyed(keyed, arguments.Flag(2, false)));
  Values items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return JinjaValue::List(std::move(items));
}

Value Unique(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const PathGetter getter, PathGetter::Create(arguments, 1));
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   MakeKeyed(run, self, getter, arguments.Flag(0, false)));
  std::vector<const Keyed*> kept;
  for (const Keyed& entry : keyed) {
    RETURN_IF_ERROR(run.Charge(static_cast<int64_t>(kept.size())));
    const bool seen = std::any_of(kept.begin(), kept.end(), [&](const Keyed* other) {
      return JinjaEquals(other->key, entry.key);
    });
    if (!seen) kept.push_back(&entry);
  }
  Values items;
  for (const Keyed* entry : kept) items.push_back(entry->item);
  return JinjaValue::List(std::move(items));
}

Value Extreme(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments, bool largest) {
  ASSIGN_OR_RETURN(const PathGetter getter, PathGetter::Create(arguments, 1));
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   MakeKeyed(run, self, getter, arguments.Flag(0, false)));
  if (keyed.empty()) return JinjaValue::MakeUndefined("No aggregated item, sequence was empty.");
  const Keyed* best = &keyed[0];
  for (const Keyed& entry : keyed) {
    ASSIGN_OR_RETURN(const bool better,
                     largest ? JinjaLess(best->key, entry.key) : JinjaLess(entry.key, best->key));
    if (better) best = &entry;
  }
  return best->item;
}

Value Min(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return Extreme(run, self, arguments, false);
}

Value Max(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return Extreme(run, self, arguments, true);
}

Value Sum(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const PathGetter getter, PathGetter::Create(arguments, 0));
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  JinjaValue sum = arguments.has(1) ? arguments[1] : JinjaValue::Int(0);
  for (const JinjaValue& item : items) {
    ASSIGN_OR_RETURN(const JinjaValue value, getter.Get(run, item));
    RETURN_IF_ERROR(run.Charge(sum.weight()));
    ASSIGN_OR_RETURN(sum, JinjaArithmetic(JinjaOperator::kAdd, sum, value));
  }
  return sum;
}

Value GroupBy(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(PathGetter getter, PathGetter::Create(arguments, 0));
  if (arguments.has(1)) getter.set_when_missing(arguments[1]);
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   MakeKeyed(run, self, getter, arguments.Flag(2, false)));
  RETURN_IF_ERROR(SortKeyed(keyed, false));
  Values groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    Values items;
    while (end < keyed.size() && JinjaEquals(keyed[end].key, keyed[begin].key)) {
      items.push_back(keyed[end++].item);
    }
    // The group's name is the first item's own, not the one made for sorting.
    ASSIGN_OR_RETURN(JinjaValue name, getter.Get(run, keyed[begin].item));
    ASSIGN_OR_RETURN(JinjaValue list, JinjaValue::List(std::move(items)));
    ASSIGN_OR_RETURN(JinjaValue group,
                     JinjaValue::Make({.kind = JinjaList::Kind::kGroup,
                                       .items = {std::move(name), std::move(list)}}));
    groups.push_back(std::move(group));
    begin = end;
  }
  return JinjaValue::List(std::move(groups));
}

Value Join(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const PathGetter getter, PathGetter::Create(arguments, 1));
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  const JinjaText separator = arguments.has(0) ? JinjaStr(arguments[0]) : JinjaText();
  JinjaText result;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const JinjaValue item, getter.Get(run, items[i]));
    RETURN_IF_ERROR(run.Charge(item.weight()));
    if (i > 0) result.Append(separator);
    result.Append(JinjaStr(item));
    const int64_t bytes = static_cast<int64_t>(result.size());
    if (bytes > kMaxJinjaTextBytes) return JinjaTooLong(bytes);
  }
  return JinjaValue::Text(std::move(result));
}

Value Attribute(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaText name, arguments.Text(0, ""));
  // Unlike obj.name, this never looks at the items of a mapping.
  if (self.is_dict() && FindDictMethod(name.view()) == nullptr) {
    return JinjaValue::MakeUndefined(
        absl::StrCat("'dict object' has no attribute '", name.bytes(), "'"));
  }
  return run.Attribute(self, name.view());
}

Value Batch(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  ASSIGN_OR_RETURN(const int64_t size, arguments.Int(0, 0));
  if (size <= 0 || size > kMaxJinjaItems) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch: size is out of range: size=", size, " limit=", kMaxJinjaItems));
  }
  Values batches;
  for (size_t begin = 0; begin < items.size(); begin += size) {
    const size_t end = std::min(items.size(), begin + size);
    Values batch(items.begin() + begin, items.begin() + end);
    if (arguments.has(1) && !arguments[1].is_none()) batch.resize(size, arguments[1]);
    ASSIGN_OR_RETURN(JinjaValue list, JinjaValue::List(std::move(batch)));
    batches.push_back(std::move(list));
  }
  return JinjaValue::List(std::move(batches));
}

Value Slice(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  ASSIGN_OR_RETURN(const int64_t slices, arguments.Int(0, 0));
  if (slices <= 0 || slices > kMaxJinjaItems) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice: count is out of range: count=", slices, " limit=", kMaxJinjaItems));
  }
  RETURN_IF_ERROR(run.Charge(slices));
  const int64_t per_slice = static_cast<int64_t>(items.size()) / slices;
  const int64_t longer = static_cast<int64_t>(items.size()) % slices;
  Values result;
  auto at = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const auto end = at + per_slice + (i < longer ? 1 : 0);
    Values slice(at, end);
    at = end;
    if (arguments.has(1) && !arguments[1].is_none() && i >= longer) slice.push_back(arguments[1]);
    ASSIGN_OR_RETURN(JinjaValue list, JinjaValue::List(std::move(slice)));
    result.push_back(std::move(list));
  }
  return JinjaValue::List(std::move(result));
}

// map('filter', arguments ...) or map(attribute='path', default=value).
Value Map(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  if (!self.truthy()) return JinjaValue::List({});
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  Values result;
  if (arguments.rest.positional.empty()) {
    JinjaBound attribute;
    attribute.values.resize(2);
    for (const auto& [name, value] : arguments.rest.named) {
      if (name != "attribute" && name != "default") {
        return absl::InvalidArgumentError(absl::StrCat("Unexpected keyword argument '", name, "'"));
      }
      attribute.values[name == "attribute" ? 0 : 1] = value;
    }
    if (!attribute.has(0)) return absl::InvalidArgumentError("map requires a filter argument");
    ASSIGN_OR_RETURN(PathGetter getter, PathGetter::Create(attribute, 0));
    if (attribute.has(1) && !attribute[1].is_none()) getter.set_when_missing(attribute[1]);
    for (const JinjaValue& item : items) {
      ASSIGN_OR_RETURN(JinjaValue value, getter.Get(run, item));
      result.push_back(std::move(value));
    }
    return JinjaValue::List(std::move(result));
  }
  const JinjaText name = JinjaStr(arguments.rest.positional[0]);
  const JinjaFunction* filter = FindJinjaFilter(name.view());
  if (filter == nullptr) {
    return absl::UnimplementedError(absl::StrCat("no filter named '", name.bytes(), "'"));
  }
  JinjaArguments rest = arguments.rest;
  rest.positional.erase(rest.positional.begin());
  for (const JinjaValue& item : items) {
    ASSIGN_OR_RETURN(JinjaValue value, run.Apply(*filter, item, rest));
    result.push_back(std::move(value));
  }
  return JinjaValue::List(std::move(result));
}

// What select, reject, selectattr and rejectattr share: keeps the items whose test says `wanted`.
Value Choose(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments, bool by_attribute,
             bool wanted) {
  if (!self.truthy()) return JinjaValue::List({});
  ASSIGN_OR_RETURN(const Values items, run.Iterate(self));
  JinjaArguments rest = arguments.rest;
  PathGetter getter;
  if (by_attribute) {
    if (rest.positional.empty()) {
      return absl::InvalidArgumentError("Missing parameter for attribute name");
    }
    JinjaBound attribute;
    attribute.values.push_back(rest.positional[0]);
    ASSIGN_OR_RETURN(getter, PathGetter::Create(attribute, 0));
    rest.positional.erase(rest.positional.begin());
  }
  const JinjaFunction* test = nullptr;
  if (!rest.positional.empty()) {
    const JinjaText name = JinjaStr(rest.positional[0]);
    test = FindJinjaTest(name.view());
    if (test == nullptr) {
      return absl::UnimplementedError(absl::StrCat("no test named '", name.bytes(), "'"));
    }
    rest.positional.erase(rest.positional.begin());
  }
  Values kept;
  for (const JinjaValue& item : items) {
    ASSIGN_OR_RETURN(JinjaValue value, getter.Get(run, item));
    if (test != nullptr) {
      ASSIGN_OR_RETURN(value, run.Apply(*test, value, rest));
    }
    if (value.truthy() == wanted) kept.push_back(item);
  }
  return JinjaValue::List(std::move(kept));
}

Value Select(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return Choose(run, self, arguments, false, true);
}
Value Reject(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return Choose(run, self, arguments, false, false);
}
Value SelectByAttribute(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return Choose(run, self, arguments, true, true);
}
Value RejectByAttribute(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  return Choose(run, self, arguments, true, false);
}

constexpr JinjaFunction kFilters[] = {
    {"attr", "name", 1, Attribute},
    {"batch", "linecount fill_with", 1, Batch},
    {"count", "", 0, Length},
    {"d", "default_value boolean", 0, Default},
    {"default", "default_value boolean", 0, Default},
    {"dictsort", "case_sensitive by reverse", 0, DictSort},
    {"first", "", 0, First},
    {"groupby", "attribute default case_sensitive", 1, GroupBy},
    {"items", "", 0, Items},
    {"join", "d attribute", 0, Join},
    {"last", "", 0, Last},
    {"length", "", 0, Length},
    {"list", "", 0, ToList},
    {"map", "*", 0, Map},
    {"max", "case_sensitive attribute", 0, Max},
    {"min", "case_sensitive attribute", 0, Min},
    {"reject", "*", 0, Reject},
    {"rejectattr", "*", 0, RejectByAttribute},
    {"reverse", "", 0, Reverse},
    {"select", "*", 0, Select},
    {"selectattr", "*", 0, SelectByAttribute},
    {"slice", "slices fill_with", 1, Slice},
    {"sort", "reverse case_sensitive attribute", 0, Sort},
    {"sum", "attribute start", 0, Sum},
    {"unique", "case_sensitive attribute", 0, Unique},
};

}  // namespace

std::span<const JinjaFunction> JinjaSequenceFilters() { return kFilters; }

const JinjaFunction* FindJinjaFilter(std::string_view name) {
  const JinjaFunction* text_filter = FindFunction(JinjaTextFilters(), name);
  return text_filter != nullptr ? text_filter : FindFunction(kFilters, name);
}

}  // namespace cairn
