// The syntax tree of a template, and the parser that makes it.
//
// A tree is checked when it is made: unknown tags, filters and tests are errors of the template,
// with their line, before any conversation is seen.
// Thread: any; a tree does not change.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/jinja_value.h"

namespace cairn {

inline constexpr int kMaxTemplateNesting = 100;

struct JinjaExpression;
using JinjaExpressionPtr = std::unique_ptr<JinjaExpression>;

struct JinjaCallArguments {
  std::vector<JinjaExpressionPtr> positional;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> named;
  JinjaExpressionPtr rest;        // *expression
  JinjaExpressionPtr named_rest;  // **expression
};

enum class JinjaOperator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kNegate,
  kPlus,
};

struct JinjaExpression {
  enum class Kind {
    kConstant,         // constant
    kName,             // name
    kTuple,            // parts
    kList,             // parts
    kDict,             // parts: key, value, key, value ...
    kCondition,        // parts: condition, value, other value (may be null)
    kAnd,              // parts: 2
    kOr,               // parts: 2
    kNot,              // parts: 1
    kCompare,          // parts: n + 1, operators: n
    kBinary,           // parts: 2, operators: 1
    kUnary,            // parts: 1, operators: 1
    kConcat,           // parts
    kAttribute,        // parts: 1, name
    kItem,             // parts: object, key
    kSlice,            // parts: object, start, stop, step (each may be null)
    kCall,             // parts: 1, arguments
    kFilter,           // parts: 1 (null in a filter block), function, arguments
    kTest,             // parts: 1, function, arguments
    kNamespaceTarget,  // name, member: left side of {% set ns.member = ... %}
  };
  Kind kind;
  int line = 1;
  JinjaValue constant;
  std::string name;
  std::string member;
  std::vector<JinjaExpressionPtr> parts;
  std::vector<JinjaOperator> operators;
  JinjaCallArguments arguments;
  const JinjaFunction* function = nullptr;
};

struct JinjaStatement;
using JinjaBody = std::vector<JinjaStatement>;

struct JinjaParameter {
  std::string name;
  JinjaExpressionPtr when_missing;  // null: none
};

struct JinjaStatement {
  enum class Kind {
    kText,         // text
    kOutput,       // value
    kIf,           // branches, otherwise
    kFor,          // target, value, condition (may be null), recursive, body, otherwise
    kSet,          // target, value
    kSetBlock,     // target, filter (may be null), body
    kMacro,        // name, parameters, body
    kCallBlock,    // value (a call), parameters, body
    kFilterBlock,  // filter, body
    kWith,         // bindings, body
    kBreak,
    kContinue,
    kBody,  // body: a block without meaning of its own ({% generation %})
  };
  struct Branch {
    JinjaExpressionPtr condition;
    JinjaBody body;
  };
  Kind kind;
  int line = 1;
  std::string text;
  std::string name;
  JinjaExpressionPtr target;
  JinjaExpressionPtr value;
  JinjaExpressionPtr condition;
  JinjaExpressionPtr filter;
  bool recursive = false;
  std::vector<JinjaParameter> parameters;
  std::vector<std::pair<JinjaExpressionPtr, JinjaExpressionPtr>> bindings;
  std::vector<Branch> branches;
  JinjaBody body;
  JinjaBody otherwise;
};

// Errors: InvalidArgument for a syntax error, Unimplemented for a tag, filter or test that is not
// known; both begin with the line.
absl::StatusOr<JinjaBody> ParseJinja(std::string_view source);

}  // namespace cairn
