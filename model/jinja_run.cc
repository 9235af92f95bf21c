#include "model/jinja_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "model/jinja_objects.h"
#include "model/unicode.h"

namespace cairn {

using Kind = JinjaStatement::Kind;
using Value = absl::StatusOr<JinjaValue>;

JinjaRun::JinjaRun(absl::CivilSecond now) : now_(now) {}
JinjaRun::~JinjaRun() = default;

absl::Status JinjaRun::Charge(int64_t work) {
  work_ += work;
  if (work_ <= kMaxJinjaWork) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("template takes too much work: limit=", kMaxJinjaWork));
}

absl::Status JinjaRun::Raise(std::string_view message) {
  raised_ = true;
  return absl::InvalidArgumentError(absl::string_view(message.data(), message.size()));
}

void JinjaRun::Set(std::string_view name, JinjaValue value) {
  if (scope_ == nullptr) scope_ = PushScope(nullptr);
  scope_->Set(name, std::move(value));
}

absl::StatusOr<JinjaText> JinjaRun::Render(const JinjaBody& body) {
  if (scope_ == nullptr) scope_ = PushScope(nullptr);
  absl::StatusOr<JinjaText> text = Capture(body);
  if (!text.ok() && !raised_ && error_line_ > 0) {
    return Annotate(text.status(), absl::StrCat("line ", error_line_));
  }
  return text;
}

JinjaRun::Scope* JinjaRun::PushScope(Scope* parent) {
  scopes_.push_back(std::make_unique<Scope>());
  scopes_.back()->parent = parent;
  return scopes_.back().get();
}

// Goes back to scope `back`; forgets `scope` unless a macro still needs it.
void JinjaRun::PopScope(Scope* scope, Scope* back) {
  scope_ = back;
  if (!scope->captured && scopes_.back().get() == scope) scopes_.pop_back();
}

absl::StatusOr<JinjaObject*> JinjaRun::Own(std::unique_ptr<JinjaObject> object) {
  if (static_cast<int64_t>(objects_.size()) >= kMaxJinjaObjects) {
    return absl::ResourceExhaustedError(
        absl::StrCat("template makes too many objects: limit=", kMaxJinjaObjects));
  }
  objects_.push_back(std::move(object));
  return objects_.back().get();
}

const JinjaValue* JinjaRun::Lookup(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const JinjaValue* value = scope->Find(name);
    if (value != nullptr) return value;
  }
  return nullptr;
}

absl::Status JinjaRun::Write(const JinjaText& text) {
  const int64_t bytes = static_cast<int64_t>(out_->size() + text.size());
  if (bytes > kMaxJinjaTextBytes) return JinjaTooLong(bytes);
  out_->Append(text);
  return Charge(static_cast<int64_t>(text.size()) / 32);
}

absl::StatusOr<JinjaText> JinjaRun::Capture(const JinjaBody& body) {
  JinjaText text;
  JinjaText* const saved = std::exchange(out_, &text);
  const absl::StatusOr<Flow> flow = Execute(body);
  out_ = saved;
  if (!flow.ok()) return flow.status();
  return text;
}

absl::StatusOr<JinjaText> JinjaRun::CaptureInScope(const JinjaBody& body) {
  Scope* const outer = scope_;
  Scope* const scope = scope_ = PushScope(outer);
  absl::StatusOr<JinjaText> text = Capture(body);
  PopScope(scope, outer);
  return text;
}

absl::StatusOr<JinjaRun::Flow> JinjaRun::Execute(const JinjaBody& body) {
  const Level level(this);
  RETURN_IF_ERROR(level.Check());
  for (const JinjaStatement& statement : body) {
    RETURN_IF_ERROR(Charge(1));
    const absl::StatusOr<Flow> flow = ExecuteStatement(statement);
    if (!flow.ok()) {
      if (error_line_ == 0) error_line_ = statement.line;
      return flow;
    }
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<JinjaRun::Flow> JinjaRun::ExecuteStatement(const JinjaStatement& statement) {
  switch (statement.kind) {
    case Kind::kText:
      RETURN_IF_ERROR(Write(JinjaText::Scaffolding(statement.text)));
      break;
    case Kind::kOutput: {
      ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.value));
      RETURN_IF_ERROR(Charge(value.is_text() ? 1 : 8 * value.weight()));
      RETURN_IF_ERROR(Write(JinjaStr(value)));
      break;
    }
    case Kind::kIf:
      return ExecuteIf(statement);
    case Kind::kFor: {
      ASSIGN_OR_RETURN(const JinjaValue iterable, Evaluate(*statement.value));
      RETURN_IF_ERROR(ExecuteFor(statement, iterable, 0));
      break;
    }
    case Kind::kSet: {
      ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.value));
      RETURN_IF_ERROR(Assign(*statement.target, value));
      break;
    }
    case Kind::kSetBlock:
      RETURN_IF_ERROR(ExecuteSetBlock(statement));
      break;
    case Kind::kMacro:
      RETURN_IF_ERROR(DefineMacro(statement));
      break;
    case Kind::kCallBlock:
      RETURN_IF_ERROR(ExecuteCallBlock(statement));
      break;
    case Kind::kFilterBlock: {
      ASSIGN_OR_RETURN(JinjaText text, CaptureInScope(statement.body));
      ASSIGN_OR_RETURN(const JinjaValue value,
                       EvaluateBlockFilters(*statement.filter, JinjaValue::Text(std::move(text))));
      RETURN_IF_ERROR(Write(JinjaStr(value)));
      break;
    }
    case Kind::kWith:
      RETURN_IF_ERROR(ExecuteWith(statement));
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
    case Kind::kBody:
      return ExecuteInScope(statement.body);
  }
  return Flow::kNext;
}

absl::StatusOr<JinjaRun::Flow> JinjaRun::ExecuteInScope(const JinjaBody& body) {
  Scope* const outer = scope_;
  Scope* const scope = scope_ = PushScope(outer);
  const absl::StatusOr<Flow> flow = Execute(body);
  PopScope(scope, outer);
  return flow;
}

absl::StatusOr<JinjaRun::Flow> JinjaRun::ExecuteIf(const JinjaStatement& statement) {
  for (const JinjaStatement::Branch& branch : statement.branches) {
    ASSIGN_OR_RETURN(const JinjaValue condition, Evaluate(*branch.condition));
    if (condition.truthy()) return Execute(branch.body);
  }
  return Execute(statement.otherwise);
}

absl::StatusOr<std::vector<JinjaValue>> JinjaRun::LoopItems(const JinjaStatement& loop,
                                                            const JinjaValue& iterable) {
  ASSIGN_OR_RETURN(std::vector<JinjaValue> items, Iterate(iterable));
  if (loop.condition == nullptr) return items;
  Scope* const outer = scope_;
  Scope* const scope = scope_ = PushScope(outer);
  std::vector<JinjaValue> kept;
  absl::Status status;
  for (const JinjaValue& item : items) {
    status = Assign(*loop.target, item);
    if (!status.ok()) break;
    const Value wanted = Evaluate(*loop.condition);
    status = wanted.status();
    if (!status.ok()) break;
    if (wanted->truthy()) kept.push_back(item);
  }
  PopScope(scope, outer);
  if (!status.ok()) return status;
  return kept;
}

absl::Status JinjaRun::ExecuteFor(const JinjaStatement& statement, const JinjaValue& iterable,
                                  int depth) {
  ASSIGN_OR_RETURN(std::vector<JinjaValue> items, LoopItems(statement, iterable));
  if (items.empty()) return ExecuteInScope(statement.otherwise).status();
  auto owned = std::make_unique<Loop>();
  Loop& loop = *owned;
  loop.statement = &statement;
  loop.items = std::move(items);
  loop.length = loop.items.size();
  loop.depth = depth;
  loop.outer = scope_;
  ASSIGN_OR_RETURN(JinjaObject* const object, Own(std::move(owned)));
  Scope* const outer = scope_;
  absl::StatusOr<Flow> flow = Flow::kNext;
  for (; loop.index < loop.length && flow.ok() && *flow != Flow::kBreak; ++loop.index) {
    Scope* const scope = scope_ = PushScope(outer);
    scope->Set("loop", JinjaValue::Object(object));
    const absl::Status assigned = Assign(*statement.target, loop.items[loop.index]);
    if (assigned.ok()) {
      flow = Execute(statement.body);
    } else {
      flow = assigned;
    }
    PopScope(scope, outer);
  }
  // The object stays, for a variable may still hold it; what it looped over need not.
  loop.items.clear();
  loop.items.shrink_to_fit();
  return flow.status();
}

absl::Status JinjaRun::ExecuteWith(const JinjaStatement& with) {
  Scope* const outer = scope_;
  std::vector<JinjaValue> values;
  for (const auto& binding : with.bindings) {
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*binding.second));
    values.push_back(std::move(value));
  }
  Scope* const scope = scope_ = PushScope(outer);
  absl::Status status;
  for (size_t i = 0; i < values.size() && status.ok(); ++i) {
    status = Assign(*with.bindings[i].first, values[i]);
  }
  if (status.ok()) status = Execute(with.body).status();
  PopScope(scope, outer);
  return status;
}

absl::Status JinjaRun::ExecuteSetBlock(const JinjaStatement& block) {
  ASSIGN_OR_RETURN(JinjaText text, CaptureInScope(block.body));
  JinjaValue value = JinjaValue::Text(std::move(text));
  if (block.filter != nullptr) {
    ASSIGN_OR_RETURN(value, EvaluateBlockFilters(*block.filter, value));
  }
  return Assign(*block.target, value);
}

Value JinjaRun::NewMacro(const JinjaStatement& definition) {
  auto macro = std::make_unique<Macro>();
  macro->definition = &definition;
  macro->outer = scope_;
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  ASSIGN_OR_RETURN(JinjaObject* const object, Own(std::move(macro)));
  return JinjaValue::Object(object);
}

absl::Status JinjaRun::DefineMacro(const JinjaStatement& definition) {
  ASSIGN_OR_RETURN(const JinjaValue macro, NewMacro(definition));
  scope_->Set(definition.name, macro);
  return absl::OkStatus();
}

absl::Status JinjaRun::ExecuteCallBlock(const JinjaStatement& block) {
  ASSIGN_OR_RETURN(const JinjaValue caller, NewMacro(block));
  const JinjaExpression& call = *block.value;
  ASSIGN_OR_RETURN(const JinjaValue function, Evaluate(*call.parts[0]));
  JinjaArguments arguments;
  RETURN_IF_ERROR(EvaluateArguments(call.arguments, arguments));
  arguments.named.emplace_back("caller", caller);
  ASSIGN_OR_RETURN(const JinjaValue result, Call(function, std::move(arguments)));
  return Write(JinjaStr(result));
}

absl::Status JinjaRun::Assign(const JinjaExpression& target, const JinjaValue& value) {
  if (target.kind == JinjaExpression::Kind::kName) {
    scope_->Set(target.name, value);
    return absl::OkStatus();
  }
  if (target.kind == JinjaExpression::Kind::kNamespaceTarget) {
    const JinjaValue* object = Lookup(target.name);
    Namespace* const space = object != nullptr && object->is_object()
                                 ? dynamic_cast<Namespace*>(object->object())
                                 : nullptr;
    if (space == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot assign attribute on non-namespace object: ", target.name));
    }
    for (auto& [name, member] : space->members) {
      if (name != target.member) continue;
      member = value;
      return absl::OkStatus();
    }
    space->members.emplace_back(target.member, value);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> items, Iterate(value));
  if (items.size() != target.parts.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cannot unpack: values=%d names=%d", items.size(), target.parts.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) RETURN_IF_ERROR(Assign(*target.parts[i], items[i]));
  return absl::OkStatus();
}

Value JinjaRun::CallMacro(const Macro& macro, JinjaArguments arguments) {
  Scope* const back = scope_;
  Scope* const scope = scope_ = PushScope(macro.outer);
  absl::StatusOr<JinjaText> text = JinjaText();
  const absl::Status bound = BindMacro(macro, std::move(arguments));
  if (bound.ok()) {
    text = Capture(macro.definition->body);
  } else {
    text = bound;
  }
  PopScope(scope, back);
  if (!text.ok()) return text.status();
  return JinjaValue::Text(*std::move(text));
}

// Sets the macro's parameters in the current scope. Defaults may read the parameters before them.
absl::Status JinjaRun::BindMacro(const Macro& macro, JinjaArguments arguments) {
  const std::vector<JinjaParameter>& parameters = macro.definition->parameters;
  std::vector<std::pair<JinjaValue, JinjaValue>> named_rest;
  for (auto& argument : arguments.named) {
    const std::string& name = argument.first;
    JinjaValue& value = argument.second;
    const bool known = std::any_of(parameters.begin(), parameters.end(),
                                   [&](const JinjaParameter& p) { return p.name == name; });
    if (known || name == "caller") {
      scope_->Set(name, std::move(value));
    } else {
      named_rest.emplace_back(JinjaValue::Scaffolding(name), std::move(value));
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const JinjaParameter& parameter = parameters[i];
    if (i < arguments.positional.size()) {
      scope_->Set(parameter.name, std::move(arguments.positional[i]));
    } else if (scope_->Find(parameter.name) != nullptr) {
      continue;
    } else if (parameter.when_missing != nullptr) {
      ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*parameter.when_missing));
      scope_->Set(parameter.name, std::move(value));
    } else {
      scope_->Set(parameter.name, JinjaValue::MakeUndefined(absl::StrCat(
                                      "parameter '", parameter.name, "' was not provided")));
    }
  }
  std::vector<JinjaValue> rest;
  for (size_t i = parameters.size(); i < arguments.positional.size(); ++i) {
    rest.push_back(std::move(arguments.positional[i]));
  }
  ASSIGN_OR_RETURN(JinjaValue varargs, JinjaValue::Tuple(std::move(rest)));
  ASSIGN_OR_RETURN(JinjaValue kwargs, JinjaValue::Dict(std::move(named_rest)));
  scope_->Set("varargs", std::move(varargs));
  scope_->Set("kwargs", std::move(kwargs));
  return absl::OkStatus();
}

}  // namespace cairn
