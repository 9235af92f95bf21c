// What attributes, items and calls of values mean.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/jinja_objects.h"
#include "model/jinja_run.h"

namespace cairn {
namespace {

using Value = absl::StatusOr<JinjaValue>;

// Python's methods that change their object: the sandbox refuses them.
constexpr std::string_view kChangingMethods[] = {"append",     "clear",   "extend", "insert",
                                                 "pop",        "popitem", "remove", "reverse",
                                                 "setdefault", "sort",    "update"};

// A filter may look at each character, and most are slower than copying.
constexpr int64_t kTextBytesPerStep = 4;

JinjaValue NoAttribute(const JinjaValue& object, std::string_view name) {
  if (object.is_none()) {
    return JinjaValue::MakeUndefined(
        absl::StrFormat("'None' has no attribute '%s'", std::string(name)));
  }
  return JinjaValue::MakeUndefined(absl::StrFormat(
      "'%s object' has no attribute '%s'", std::string(object.type_name()), std::string(name)));
}

Value ListItem(const std::vector<JinjaValue>& items, JinjaInt index, const JinjaValue& object) {
  const JinjaInt size = static_cast<JinjaInt>(items.size());
  const JinjaInt at = index < 0 ? index + size : index;
  if (at >= 0 && at < size) return items[at];
  return JinjaValue::MakeUndefined(absl::StrCat(std::string(object.type_name()),
                                                " object has no element ", JinjaIntText(index)));
}

}  // namespace

Value JinjaRun::Attribute(const JinjaValue& object, std::string_view name) {
  if (object.is_undefined()) return absl::InvalidArgumentError(object.undefined_message());
  if (object.is_object()) return ObjectAttribute(object, name);
  const JinjaFunction* method = nullptr;
  if (object.is_text()) method = FindTextMethod(name);
  if (object.is_dict()) method = FindDictMethod(name);
  if (object.is_list()) {
    if (object.list().kind == JinjaList::Kind::kGroup) {
      if (name == "grouper") return object.list().items[0];
      if (name == "list") return object.list().items[1];
    }
    method = FindListMethod(name);
  }
  if (method != nullptr) return JinjaValue::Method(object, method);
  if (object.is_dict()) {
    const JinjaValue* value = object.dict().Find(name);
    if (value != nullptr) return *value;
  }
  const bool changes = std::find(std::begin(kChangingMethods), std::end(kChangingMethods), name) !=
                       std::end(kChangingMethods);
  if (changes && (object.is_dict() || object.type_name() == "list")) {
    return JinjaValue::MakeUndefined(
        absl::StrFormat("access to attribute '%s' of '%s' object is unsafe.", std::string(name),
                        std::string(object.type_name())));
  }
  return NoAttribute(object, name);
}

Value JinjaRun::Item(const JinjaValue& object, const JinjaValue& key) {
  if (object.is_undefined()) return absl::InvalidArgumentError(object.undefined_message());
  if (object.is_dict()) {
    const JinjaValue* value = object.dict().Find(key);
    if (value != nullptr) return *value;
  }
  const bool is_index = key.is_int() || key.is_bool();
  if (is_index && object.is_list()) return ListItem(object.list().items, key.as_int(), object);
  if (is_index && object.is_text()) {
    const JinjaText& text = object.text();
    RETURN_IF_ERROR(Charge(object.weight()));
    const std::vector<size_t> starts = CharacterStarts(text.view());
    const JinjaInt count = static_cast<JinjaInt>(starts.size()) - 1;
    const JinjaInt at = key.as_int() < 0 ? key.as_int() + count : key.as_int();
    if (at >= 0 && at < count) return JinjaValue::Text(text.Part(starts[at], starts[at + 1]));
  }
  if (key.is_text()) return Attribute(object, key.text().view());
  return JinjaValue::MakeUndefined(absl::StrCat(std::string(object.type_name()),
                                                " object has no element ",
                                                JinjaRepr(key).bytes().substr(0, 100)));
}

Value JinjaRun::ObjectAttribute(const JinjaValue& object, std::string_view name) {
  if (const auto* space = dynamic_cast<Namespace*>(object.object())) {
    for (const auto& [member, value] : space->members) {
      if (member == name) return value;
    }
  } else if (dynamic_cast<Loop*>(object.object()) != nullptr) {
    return LoopAttribute(object, name);
  } else if (const auto* macro = dynamic_cast<Macro*>(object.object())) {
    if (name == "name") return JinjaValue::Scaffolding(macro->definition->name);
    if (name == "arguments") {
      std::vector<JinjaValue> names;
      for (const JinjaParameter& parameter : macro->definition->parameters) {
        names.push_back(JinjaValue::Scaffolding(parameter.name));
      }
      return JinjaValue::Tuple(std::move(names));
    }
  } else if (const auto* cycler = dynamic_cast<Cycler*>(object.object())) {
    if (name == "current") return cycler->items[cycler->index];
    const JinjaFunction* method = FindCyclerMethod(name);
    if (method != nullptr) return JinjaValue::Method(object, method);
  }
  return NoAttribute(object, name);
}

Value JinjaRun::LoopAttribute(const JinjaValue& object, std::string_view name) {
  const Loop& loop = *static_cast<const Loop*>(object.object());
  const JinjaInt index = static_cast<JinjaInt>(loop.index);
  const JinjaInt length = static_cast<JinjaInt>(loop.length);
  if (name == "index") return JinjaValue::Int(index + 1);
  if (name == "index0") return JinjaValue::Int(index);
  if (name == "revindex") return JinjaValue::Int(length - index);
  if (name == "revindex0") return JinjaValue::Int(length - index - 1);
  if (name == "first") return JinjaValue::Bool(index == 0);
  if (name == "last") return JinjaValue::Bool(index + 1 >= length);
  if (name == "length") return JinjaValue::Int(length);
  if (name == "depth") return JinjaValue::Int(loop.depth + 1);
  if (name == "depth0") return JinjaValue::Int(loop.depth);
  if (name == "previtem") {
    if (index == 0 || loop.items.empty()) {
      return JinjaValue::MakeUndefined("there is no previous item");
    }
    return loop.items[loop.index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= length || loop.items.empty()) {
      return JinjaValue::MakeUndefined("there is no next item");
    }
    return loop.items[loop.index + 1];
  }
  const JinjaFunction* method = FindLoopMethod(name);
  if (method != nullptr) return JinjaValue::Method(object, method);
  return NoAttribute(object, name);
}

Value JinjaRun::LoopCycle(const JinjaValue& object, const std::vector<JinjaValue>& items) {
  const Loop& loop = *static_cast<const Loop*>(object.object());
  if (items.empty()) return absl::InvalidArgumentError("no items for cycling given");
  return items[loop.index % items.size()];
}

Value JinjaRun::LoopChanged(const JinjaValue& object, const std::vector<JinjaValue>& values) {
  Loop& loop = *static_cast<Loop*>(object.object());
  const bool same =
      loop.has_changed && std::equal(values.begin(), values.end(), loop.last_changed.begin(),
                                     loop.last_changed.end(), JinjaEquals);
  loop.has_changed = true;
  loop.last_changed = values;
  return JinjaValue::Bool(!same);
}

Value JinjaRun::CyclerNext(const JinjaValue& object) {
  Cycler& cycler = *static_cast<Cycler*>(object.object());
  JinjaValue item = cycler.items[cycler.index];
  cycler.index = (cycler.index + 1) % cycler.items.size();
  return item;
}

Value JinjaRun::CyclerReset(const JinjaValue& object) {
  static_cast<Cycler*>(object.object())->index = 0;
  return JinjaValue();
}

Value JinjaRun::Apply(const JinjaFunction& function, const JinjaValue& self,
                      JinjaArguments arguments) {
  const int64_t items = self.is_list()   ? static_cast<int64_t>(self.list().items.size())
                        : self.is_dict() ? static_cast<int64_t>(self.dict().items.size())
                        : self.is_text()
                            ? static_cast<int64_t>(self.text().size()) / kTextBytesPerStep
                            : 0;
  RETURN_IF_ERROR(Charge(1 + items));
  ASSIGN_OR_RETURN(const JinjaBound bound, BindJinjaArguments(function, std::move(arguments)));
  return function.call(*this, self, bound);
}

Value JinjaRun::Call(const JinjaValue& function, JinjaArguments arguments) {
  const Level level(this);
  RETURN_IF_ERROR(level.Check());
  if (function.is_undefined()) return absl::InvalidArgumentError(function.undefined_message());
  if (function.is_function()) {
    return Apply(*function.function(), JinjaValue(), std::move(arguments));
  }
  if (function.is_method()) {
    return Apply(*function.method().function, function.method().self, std::move(arguments));
  }
  if (function.is_object()) return CallObject(function.object(), std::move(arguments));
  return absl::InvalidArgumentError(
      absl::StrFormat("'%s' object is not callable", std::string(function.type_name())));
}

Value JinjaRun::CallObject(JinjaObject* object, JinjaArguments arguments) {
  if (const auto* macro = dynamic_cast<Macro*>(object)) {
    return CallMacro(*macro, std::move(arguments));
  }
  if (auto* joiner = dynamic_cast<Joiner*>(object)) {
    return JinjaValue::Text(std::exchange(joiner->used, true) ? joiner->separator : JinjaText());
  }
  if (const auto* loop = dynamic_cast<Loop*>(object)) {
    if (!loop->statement->recursive) {
      return absl::InvalidArgumentError(
          "the loop must have the 'recursive' marker to be called recursively.");
    }
    if (arguments.positional.size() != 1) {
      return absl::InvalidArgumentError("loop() takes one argument");
    }
    JinjaText text;
    JinjaText* const saved_out = std::exchange(out_, &text);
    Scope* const saved_scope = std::exchange(scope_, loop->outer);
    const absl::Status status =
        ExecuteFor(*loop->statement, arguments.positional[0], loop->depth + 1);
    scope_ = saved_scope;
    out_ = saved_out;
    if (!status.ok()) return status;
    return JinjaValue::Text(std::move(text));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("'%s' object is not callable", std::string(object->type_name())));
}

Value JinjaRun::NewNamespace(std::vector<std::pair<std::string, JinjaValue>> members) {
  auto space = std::make_unique<Namespace>();
  space->members = std::move(members);
  ASSIGN_OR_RETURN(JinjaObject* const object, Own(std::move(space)));
  return JinjaValue::Object(object);
}

Value JinjaRun::NewJoiner(JinjaText separator) {
  auto joiner = std::make_unique<Joiner>();
  joiner->separator = std::move(separator);
  ASSIGN_OR_RETURN(JinjaObject* const object, Own(std::move(joiner)));
  return JinjaValue::Object(object);
}

Value JinjaRun::NewCycler(std::vector<JinjaValue> items) {
  if (items.empty()) return absl::InvalidArgumentError("at least one item has to be provided");
  auto cycler = std::make_unique<Cycler>();
  cycler->items = std::move(items);
  ASSIGN_OR_RETURN(JinjaObject* const object, Own(std::move(cycler)));
  return JinjaValue::Object(object);
}

}  // namespace cairn
