// One rendering of a template: variables, objects, and the limits it must keep.
//
// Work is counted: a step for each expression and statement, more for long texts and lists. A
// template that exceeds a limit ends with an error, whatever it was given.
// Thread: one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/civil_time.h"
#include "base/status.h"
#include "model/jinja_functions.h"
#include "model/jinja_syntax.h"
#include "model/jinja_value.h"

namespace cairn {

inline constexpr int64_t kMaxJinjaWork = 20'000'000;
inline constexpr int kMaxJinjaRunDepth = 1000;        // expressions and bodies in one another
inline constexpr int64_t kMaxJinjaObjects = 500'000;  // namespaces, macros and loops

class JinjaRun {
 public:
  explicit JinjaRun(absl::CivilSecond now);
  ~JinjaRun();
  JinjaRun(const JinjaRun&) = delete;
  JinjaRun& operator=(const JinjaRun&) = delete;

  // Variables of the template, before Render.
  void Set(std::string_view name, JinjaValue value);

  // Errors: InvalidArgument with the template's own text, or with the line and what went wrong;
  // ResourceExhausted names the limit.
  absl::StatusOr<JinjaText> Render(const JinjaBody& body);

  // The rest is for filters, tests, methods and objects.

  // Errors: ResourceExhausted when the work is used up.
  absl::Status Charge(int64_t work);
  absl::StatusOr<JinjaValue> Attribute(const JinjaValue& object, std::string_view name);
  absl::StatusOr<JinjaValue> Item(const JinjaValue& object, const JinjaValue& key);
  absl::StatusOr<JinjaValue> Call(const JinjaValue& function, JinjaArguments arguments);
  absl::StatusOr<JinjaValue> Apply(const JinjaFunction& function, const JinjaValue& self,
                                   JinjaArguments arguments);
  // What a loop over the value sees. Errors: InvalidArgument if there is nothing to see.
  absl::StatusOr<std::vector<JinjaValue>> Iterate(const JinjaValue& value);
  // Whether `item` is in the container, as "in" sees it.
  absl::StatusOr<bool> Contains(const JinjaValue& container, const JinjaValue& item);
  absl::StatusOr<JinjaValue> NewNamespace(std::vector<std::pair<std::string, JinjaValue>> members);
  absl::StatusOr<JinjaValue> NewJoiner(JinjaText separator);
  absl::StatusOr<JinjaValue> NewCycler(std::vector<JinjaValue> items);
  // Methods of loops and cyclers; `object` is one.
  absl::StatusOr<JinjaValue> LoopCycle(const JinjaValue& object,
                                       const std::vector<JinjaValue>& items);
  absl::StatusOr<JinjaValue> LoopChanged(const JinjaValue& object,
                                         const std::vector<JinjaValue>& values);
  absl::StatusOr<JinjaValue> CyclerNext(const JinjaValue& object);
  absl::StatusOr<JinjaValue> CyclerReset(const JinjaValue& object);
  // Fails the rendering with the template's own words.
  absl::Status Raise(std::string_view message);
  absl::CivilSecond now() const { return now_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Scope;
  struct Loop;
  struct Macro;
  struct Namespace;
  struct Joiner;
  struct Cycler;
  class Level;
  using Value = absl::StatusOr<JinjaValue>;

  Value Evaluate(const JinjaExpression& node);
  Value EvaluateKind(const JinjaExpression& node);
  Value EvaluateName(const JinjaExpression& node);
  Value EvaluateList(const JinjaExpression& node);
  Value EvaluateDict(const JinjaExpression& node);
  Value EvaluateCompare(const JinjaExpression& node);
  Value EvaluateBinary(const JinjaExpression& node);
  Value EvaluateConcat(const JinjaExpression& node);
  Value EvaluateSlice(const JinjaExpression& node);
  Value EvaluateCall(const JinjaExpression& node);
  Value EvaluateFilter(const JinjaExpression& node, const JinjaValue& self);
  Value EvaluateBlockFilters(const JinjaExpression& node, const JinjaValue& captured);
  absl::Status EvaluateArguments(const JinjaCallArguments& nodes, JinjaArguments& arguments);
  absl::StatusOr<bool> Compare(JinjaOperator op, const JinjaValue& a, const JinjaValue& b);

  absl::StatusOr<Flow> Execute(const JinjaBody& body);
  absl::StatusOr<Flow> ExecuteStatement(const JinjaStatement& statement);
  absl::StatusOr<Flow> ExecuteIf(const JinjaStatement& statement);
  absl::StatusOr<Flow> ExecuteInScope(const JinjaBody& body);
  absl::Status ExecuteFor(const JinjaStatement& loop, const JinjaValue& iterable, int depth);
  absl::StatusOr<std::vector<JinjaValue>> LoopItems(const JinjaStatement& loop,
                                                    const JinjaValue& iterable);
  absl::Status ExecuteWith(const JinjaStatement& with);
  absl::Status ExecuteCallBlock(const JinjaStatement& block);
  absl::Status ExecuteSetBlock(const JinjaStatement& block);
  absl::Status DefineMacro(const JinjaStatement& macro);
  Value NewMacro(const JinjaStatement& definition);
  // The text that `body` writes.
  absl::StatusOr<JinjaText> Capture(const JinjaBody& body);
  absl::StatusOr<JinjaText> CaptureInScope(const JinjaBody& body);
  absl::Status BindMacro(const Macro& macro, JinjaArguments arguments);
  Value CallMacro(const Macro& macro, JinjaArguments arguments);
  Value CallObject(JinjaObject* object, JinjaArguments arguments);
  Value ObjectAttribute(const JinjaValue& object, std::string_view name);
  Value LoopAttribute(const JinjaValue& object, std::string_view name);

  absl::Status Assign(const JinjaExpression& target, const JinjaValue& value);
  absl::Status Write(const JinjaText& text);
  const JinjaValue* Lookup(std::string_view name) const;
  absl::StatusOr<JinjaObject*> Own(std::unique_ptr<JinjaObject> object);
  Scope* PushScope(Scope* parent);
  void PopScope(Scope* scope, Scope* back);

  const absl::CivilSecond now_;
  int64_t work_ = 0;
  int depth_ = 0;
  int error_line_ = 0;
  bool raised_ = false;
  JinjaText* out_ = nullptr;
  Scope* scope_ = nullptr;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<std::unique_ptr<JinjaObject>> objects_;
};

// Arithmetic of Python on two values, text formatting included.
// Errors: InvalidArgument as Python's message; ResourceExhausted for a result that is too large.
absl::StatusOr<JinjaValue> JinjaArithmetic(JinjaOperator op, const JinjaValue& a,
                                           const JinjaValue& b);
absl::StatusOr<JinjaValue> JinjaUnary(JinjaOperator op, const JinjaValue& value);
// value[start:stop:step]; each bound none or an int.
absl::StatusOr<JinjaValue> JinjaSlice(const JinjaValue& value, const JinjaValue& start,
                                      const JinjaValue& stop, const JinjaValue& step);

}  // namespace cairn
