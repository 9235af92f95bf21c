// How a run evaluates expressions.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/jinja_objects.h"
#include "model/jinja_run.h"

namespace cairn {

using Kind = JinjaExpression::Kind;
using Value = absl::StatusOr<JinjaValue>;

Value JinjaRun::Evaluate(const JinjaExpression& node) {
  const Level level(this);
  RETURN_IF_ERROR(level.Check());
  RETURN_IF_ERROR(Charge(1));
  Value value = EvaluateKind(node);
  absl::Status status = value.status();
  if (status.ok()) {
    // Large values cost what making them costs.
    const bool is_text = value->is_text();
    if (is_text) {
      const int64_t bytes = static_cast<int64_t>(value->text().size());
      status = bytes > kMaxJinjaTextBytes ? JinjaTooLong(bytes) : Charge(bytes / 32);
    } else if (value->is_list() && node.kind != Kind::kName) {
      status = Charge(static_cast<int64_t>(value->list().items.size()));
    }
  }
  if (!status.ok()) {
    if (error_line_ == 0) error_line_ = node.line;
    return status;
  }
  return value;
}

Value JinjaRun::EvaluateKind(const JinjaExpression& node) {
  switch (node.kind) {
    case Kind::kConstant:
      return node.constant;
    case Kind::kName:
      return EvaluateName(node);
    case Kind::kTuple:
    case Kind::kList:
      return EvaluateList(node);
    case Kind::kDict:
      return EvaluateDict(node);
    case Kind::kCondition: {
      ASSIGN_OR_RETURN(const JinjaValue condition, Evaluate(*node.parts[0]));
      if (condition.truthy()) return Evaluate(*node.parts[1]);
      if (node.parts[2] != nullptr) return Evaluate(*node.parts[2]);
      return JinjaValue::MakeUndefined(
          "the inline if-expression evaluated to false and no else section was defined.");
    }
    case Kind::kAnd:
    case Kind::kOr: {
      ASSIGN_OR_RETURN(JinjaValue left, Evaluate(*node.parts[0]));
      if (left.truthy() == (node.kind == Kind::kOr)) return left;
      return Evaluate(*node.parts[1]);
    }
    case Kind::kNot: {
      ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.parts[0]));
      return JinjaValue::Bool(!value.truthy());
    }
    case Kind::kCompare:
      return EvaluateCompare(node);
    case Kind::kBinary:
      return EvaluateBinary(node);
    case Kind::kUnary: {
      ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.parts[0]));
      return JinjaUnary(node.operators[0], value);
    }
    case Kind::kConcat:
      return EvaluateConcat(node);
    case Kind::kAttribute: {
      ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*node.parts[0]));
      return Attribute(object, node.name);
    }
    case Kind::kItem: {
      ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*node.parts[0]));
      ASSIGN_OR_RETURN(const JinjaValue key, Evaluate(*node.parts[1]));
      return Item(object, key);
    }
    case Kind::kSlice:
      return EvaluateSlice(node);
    case Kind::kCall:
      return EvaluateCall(node);
    case Kind::kFilter: {
      ASSIGN_OR_RETURN(const JinjaValue self, Evaluate(*node.parts[0]));
      return EvaluateFilter(node, self);
    }
    case Kind::kTest: {
      ASSIGN_OR_RETURN(const JinjaValue self, Evaluate(*node.parts[0]));
      JinjaArguments arguments;
      RETURN_IF_ERROR(EvaluateArguments(node.arguments, arguments));
      return Apply(*node.function, self, std::move(arguments));
    }
    case Kind::kNamespaceTarget:
      break;
  }
  return absl::InternalError("a target is no expression");
}

Value JinjaRun::EvaluateName(const JinjaExpression& node) {
  const JinjaValue* value = Lookup(node.name);
  if (value != nullptr) return *value;
  const JinjaFunction* function = FindJinjaGlobal(node.name);
  if (function != nullptr) return JinjaValue::Function(function);
  return JinjaValue::MakeUndefined(absl::StrCat("'", node.name, "' is undefined"));
}

Value JinjaRun::EvaluateList(const JinjaExpression& node) {
  std::vector<JinjaValue> items;
  for (const JinjaExpressionPtr& part : node.parts) {
    ASSIGN_OR_RETURN(JinjaValue item, Evaluate(*part));
    items.push_back(std::move(item));
  }
  return node.kind == Kind::kTuple ? JinjaValue::Tuple(std::move(items))
                                   : JinjaValue::List(std::move(items));
}

Value JinjaRun::EvaluateDict(const JinjaExpression& node) {
  std::vector<std::pair<JinjaValue, JinjaValue>> items;
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    ASSIGN_OR_RETURN(JinjaValue key, Evaluate(*node.parts[i]));
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*node.parts[i + 1]));
    items.emplace_back(std::move(key), std::move(value));
  }
  return JinjaValue::Dict(std::move(items));
}

Value JinjaRun::EvaluateCompare(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(JinjaValue left, Evaluate(*node.parts[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    ASSIGN_OR_RETURN(JinjaValue right, Evaluate(*node.parts[i + 1]));
    RETURN_IF_ERROR(Charge(left.weight() + (right.is_dict() ? 0 : right.weight())));
    ASSIGN_OR_RETURN(const bool holds, Compare(node.operators[i], left, right));
    if (!holds) return JinjaValue::Bool(false);
    left = std::move(right);
  }
  return JinjaValue::Bool(true);
}

absl::StatusOr<bool> JinjaRun::Compare(JinjaOperator op, const JinjaValue& a, const JinjaValue& b) {
  switch (op) {
    case JinjaOperator::kEqual:
      return JinjaEquals(a, b);
    case JinjaOperator::kNotEqual:
      return !JinjaEquals(a, b);
    case JinjaOperator::kLess:
      return JinjaLess(a, b);
    case JinjaOperator::kGreater:
      return JinjaLess(b, a);
    case JinjaOperator::kLessEqual:
    case JinjaOperator::kGreaterEqual: {
      const bool swap = op == JinjaOperator::kGreaterEqual;
      ASSIGN_OR_RETURN(const bool less, swap ? JinjaLess(b, a) : JinjaLess(a, b));
      return less || JinjaEquals(a, b);
    }
    case JinjaOperator::kIn:
      return Contains(b, a);
    default: {
      ASSIGN_OR_RETURN(const bool contains, Contains(b, a));
      return !contains;
    }
  }
}

absl::StatusOr<bool> JinjaRun::Contains(const JinjaValue& container, const JinjaValue& item) {
  if (container.is_undefined()) return false;
  if (container.is_text()) {
    if (!item.is_text()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "'in <string>' requires string as left operand, not %s", std::string(item.type_name())));
    }
    return container.text().bytes().find(item.text().bytes()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().Find(item) != nullptr;
  if (container.is_list()) {
    const std::vector<JinjaValue>& items = container.list().items;
    return std::any_of(items.begin(), items.end(),
                       [&](const JinjaValue& other) { return JinjaEquals(other, item); });
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("argument of type '%s' is not iterable", std::string(container.type_name())));
}

Value JinjaRun::EvaluateBinary(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue left, Evaluate(*node.parts[0]));
  ASSIGN_OR_RETURN(const JinjaValue right, Evaluate(*node.parts[1]));
  return JinjaArithmetic(node.operators[0], left, right);
}

Value JinjaRun::EvaluateConcat(const JinjaExpression& node) {
  JinjaText result;
  for (const JinjaExpressionPtr& part : node.parts) {
    ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*part));
    RETURN_IF_ERROR(Charge(value.weight()));
    result.Append(JinjaStr(value));
    const int64_t bytes = static_cast<int64_t>(result.size());
    if (bytes > kMaxJinjaTextBytes) return JinjaTooLong(bytes);
  }
  return JinjaValue::Text(std::move(result));
}

Value JinjaRun::EvaluateSlice(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.parts[0]));
  RETURN_IF_ERROR(Charge(value.is_text() ? value.weight() : 1));
  JinjaValue bounds[3];
  for (int i = 0; i < 3; ++i) {
    if (node.parts[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.parts[i + 1]));
  }
  return JinjaSlice(value, bounds[0], bounds[1], bounds[2]);
}

Value JinjaRun::EvaluateCall(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue function, Evaluate(*node.parts[0]));
  JinjaArguments arguments;
  RETURN_IF_ERROR(EvaluateArguments(node.arguments, arguments));
  return Call(function, std::move(arguments));
}

Value JinjaRun::EvaluateFilter(const JinjaExpression& node, const JinjaValue& self) {
  JinjaArguments arguments;
  RETURN_IF_ERROR(EvaluateArguments(node.arguments, arguments));
  return Apply(*node.function, self, std::move(arguments));
}

// A chain of filters whose innermost has no operand of its own: it takes what was captured.
Value JinjaRun::EvaluateBlockFilters(const JinjaExpression& node, const JinjaValue& captured) {
  if (node.parts[0] == nullptr) return EvaluateFilter(node, captured);
  ASSIGN_OR_RETURN(const JinjaValue inner, EvaluateBlockFilters(*node.parts[0], captured));
  return EvaluateFilter(node, inner);
}

absl::Status JinjaRun::EvaluateArguments(const JinjaCallArguments& nodes,
                                         JinjaArguments& arguments) {
  for (const JinjaExpressionPtr& node : nodes.positional) {
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*node));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, node] : nodes.named) {
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*node));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (nodes.rest != nullptr) {
    ASSIGN_OR_RETURN(const JinjaValue rest, Evaluate(*nodes.rest));
    ASSIGN_OR_RETURN(const std::vector<JinjaValue> items, Iterate(rest));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (nodes.named_rest != nullptr) {
    ASSIGN_OR_RETURN(const JinjaValue rest, Evaluate(*nodes.named_rest));
    if (!rest.is_dict()) return absl::InvalidArgumentError("argument after ** must be a mapping");
    for (const auto& [name, value] : rest.dict().items) {
      arguments.named.emplace_back(JinjaStr(name).bytes(), value);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JinjaValue>> JinjaRun::Iterate(const JinjaValue& value) {
  if (value.is_undefined()) return std::vector<JinjaValue>();
  std::vector<JinjaValue> items;
  if (value.is_list()) {
    items = value.list().items;
  } else if (value.is_dict()) {
    for (const auto& item : value.dict().items) items.push_back(item.first);
  } else if (value.is_text()) {
    const std::vector<size_t> starts = CharacterStarts(value.text().view());
    if (static_cast<int64_t>(starts.size()) > kMaxJinjaItems) {
      return absl::ResourceExhaustedError(
          absl::StrCat("text is too long to loop over: characters=", starts.size() - 1,
                       " limit=", kMaxJinjaItems));
    }
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      items.push_back(JinjaValue::Text(value.text().Part(starts[i], starts[i + 1])));
    }
  } else {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' object is not iterable", std::string(value.type_name())));
  }
  RETURN_IF_ERROR(Charge(static_cast<int64_t>(items.size())));
  return items;
}

}  // namespace cairn
