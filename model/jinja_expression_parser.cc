#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/jinja_functions.h"
#include "model/jinja_parser.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using Kind = JinjaExpression::Kind;
using TokenKind = JinjaToken::Kind;

JinjaExpressionPtr MakeNode(Kind kind, int line) {
  auto node = std::make_unique<JinjaExpression>();
  node->kind = kind;
  node->line = line;
  return node;
}

JinjaExpressionPtr MakeNode(Kind kind, int line, JinjaExpressionPtr part) {
  JinjaExpressionPtr node = MakeNode(kind, line);
  node->parts.push_back(std::move(part));
  return node;
}

JinjaExpressionPtr MakeNode(Kind kind, int line, JinjaExpressionPtr left,
                            JinjaExpressionPtr right) {
  JinjaExpressionPtr node = MakeNode(kind, line, std::move(left));
  node->parts.push_back(std::move(right));
  return node;
}

JinjaExpressionPtr MakeConstant(JinjaValue value, int line) {
  JinjaExpressionPtr node = MakeNode(Kind::kConstant, line);
  node->constant = std::move(value);
  return node;
}

absl::Status UnknownFunction(std::string_view what, std::string_view name, int line) {
  return absl::UnimplementedError(absl::StrCat("line ", line, ": no ",
                                               absl::string_view(what.data(), what.size()),
                                               " named '", Printable(name), "'"));
}

}  // namespace

absl::Status JinjaExpressionParser::TooDeep() const {
  return JinjaSyntaxError(cursor_.line(),
                          absl::StrCat("nested too deeply: limit=", kMaxTemplateNesting));
}

JinjaExpressionParser::Result JinjaExpressionParser::Expression(bool with_condition) {
  const Level level(this);
  if (level.too_deep()) return TooDeep();
  return with_condition ? Condition() : Or();
}

JinjaExpressionParser::Result JinjaExpressionParser::ExpressionOrTuple(bool with_condition,
                                                                       std::string_view end) {
  const int line = cursor_.line();
  std::vector<JinjaExpressionPtr> parts;
  bool is_tuple = false;
  while (true) {
    const TokenKind kind = cursor_.current().kind;
    if (kind == TokenKind::kOutputEnd || kind == TokenKind::kBlockEnd || cursor_.AtOperator(")") ||
        (!end.empty() && cursor_.AtName(end))) {
      break;
    }
    ASSIGN_OR_RETURN(JinjaExpressionPtr part, Expression(with_condition));
    parts.push_back(std::move(part));
    if (!cursor_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && parts.size() == 1) return std::move(parts[0]);
  if (parts.empty() && !cursor_.AtOperator(")")) return cursor_.Fail("an expression");
  JinjaExpressionPtr tuple = MakeNode(Kind::kTuple, line);
  tuple->parts = std::move(parts);
  return tuple;
}

JinjaExpressionParser::Result JinjaExpressionParser::Target(bool with_namespace,
                                                            std::string_view end) {
  const Level level(this);
  if (level.too_deep()) return TooDeep();
  const int line = cursor_.line();
  std::vector<JinjaExpressionPtr> parts;
  bool is_tuple = false;
  while (!cursor_.AtOperator("=") && !cursor_.AtOperator(")") &&
         cursor_.current().kind != TokenKind::kBlockEnd && !(!end.empty() && cursor_.AtName(end))) {
    JinjaExpressionPtr part;
    if (cursor_.TakeOperator("(")) {
      ASSIGN_OR_RETURN(part, Target(with_namespace));
      RETURN_IF_ERROR(cursor_.ExpectOperator(")"));
    } else {
      ASSIGN_OR_RETURN(part, NameOrConstant(with_namespace));
      if (part->kind == Kind::kConstant) {
        return JinjaSyntaxError(part->line, "can't assign to a constant");
      }
    }
    parts.push_back(std::move(part));
    if (!cursor_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (parts.empty()) return cursor_.Fail("a name to assign to");
  if (!is_tuple) return std::move(parts[0]);
  JinjaExpressionPtr tuple = MakeNode(Kind::kTuple, line);
  tuple->parts = std::move(parts);
  return tuple;
}

JinjaExpressionParser::Result JinjaExpressionParser::Condition() {
  const int line = cursor_.line();
  ASSIGN_OR_RETURN(JinjaExpressionPtr value, Or());
  while (cursor_.TakeName("if")) {
    if (!AddLink()) return TooDeep();
    ASSIGN_OR_RETURN(JinjaExpressionPtr condition, Or());
    JinjaExpressionPtr otherwise;
    if (cursor_.TakeName("else")) {
      ASSIGN_OR_RETURN(otherwise, Expression());
    }
    value = MakeNode(Kind::kCondition, line, std::move(condition), std::move(value));
    value->parts.push_back(std::move(otherwise));
  }
  return value;
}

JinjaExpressionParser::Result JinjaExpressionParser::Or() {
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, And());
  while (cursor_.AtName("or")) {
    if (!AddLink()) return TooDeep();
    const int line = cursor_.line();
    cursor_.Skip();
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, And());
    left = MakeNode(Kind::kOr, line, std::move(left), std::move(right));
  }
  return left;
}

JinjaExpressionParser::Result JinjaExpressionParser::And() {
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, Not());
  while (cursor_.AtName("and")) {
    if (!AddLink()) return TooDeep();
    const int line = cursor_.line();
    cursor_.Skip();
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, Not());
    left = MakeNode(Kind::kAnd, line, std::move(left), std::move(right));
  }
  return left;
}

JinjaExpressionParser::Result JinjaExpressionParser::Not() {
  if (!cursor_.AtName("not")) return Compare();
  const Level level(this);
  if (level.too_deep()) return TooDeep();
  const int line = cursor_.line();
  cursor_.Skip();
  ASSIGN_OR_RETURN(JinjaExpressionPtr value, Not());
  return MakeNode(Kind::kNot, line, std::move(value));
}

JinjaExpressionParser::Result JinjaExpressionParser::Compare() {
  static constexpr std::pair<std::string_view, JinjaOperator> kOperators[] = {
      {"==", JinjaOperator::kEqual},     {"!=", JinjaOperator::kNotEqual},
      {"<=", JinjaOperator::kLessEqual}, {">=", JinjaOperator::kGreaterEqual},
      {"<", JinjaOperator::kLess},       {">", JinjaOperator::kGreater}};
  const int line = cursor_.line();
  ASSIGN_OR_RETURN(JinjaExpressionPtr first, Sum());
  JinjaExpressionPtr compare = MakeNode(Kind::kCompare, line, std::move(first));
  while (true) {
    const size_t before = compare->operators.size();
    for (const auto& [text, op] : kOperators) {
      if (!cursor_.TakeOperator(text)) continue;
      compare->operators.push_back(op);
      break;
    }
    if (compare->operators.size() == before) {
      if (cursor_.TakeName("in")) {
        compare->operators.push_back(JinjaOperator::kIn);
      } else if (cursor_.AtName("not") && cursor_.next().IsName("in")) {
        cursor_.Skip();
        cursor_.Skip();
        compare->operators.push_back(JinjaOperator::kNotIn);
      } else {
        break;
      }
    }
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, Sum());
    compare->parts.push_back(std::move(operand));
  }
  if (compare->operators.empty()) return std::move(compare->parts[0]);
  return compare;
}

JinjaExpressionParser::Result JinjaExpressionParser::LeftChain(
    Result (JinjaExpressionParser::*operand)(), const Operators& operators) {
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, (this->*operand)());
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(), [&](const auto& candidate) {
      return cursor_.AtOperator(candidate.first);
    });
    if (found == operators.end()) return left;
    if (!AddLink()) return TooDeep();
    const int line = cursor_.line();
    cursor_.Skip();
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, (this->*operand)());
    left = MakeNode(Kind::kBinary, line, std::move(left), std::move(right));
    left->operators.push_back(found->second);
  }
}

JinjaExpressionParser::Result JinjaExpressionParser::Sum() {
  return LeftChain(&JinjaExpressionParser::Concat,
                   {{"+", JinjaOperator::kAdd}, {"-", JinjaOperator::kSubtract}});
}

JinjaExpressionParser::Result JinjaExpressionParser::Concat() {
  const int line = cursor_.line();
  ASSIGN_OR_RETURN(JinjaExpressionPtr first, Product());
  if (!cursor_.AtOperator("~")) return first;
  JinjaExpressionPtr concat = MakeNode(Kind::kConcat, line, std::move(first));
  while (cursor_.TakeOperator("~")) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr part, Product());
    concat->parts.push_back(std::move(part));
  }
  return concat;
}

JinjaExpressionParser::Result JinjaExpressionParser::Product() {
  return LeftChain(&JinjaExpressionParser::Power, {{"*", JinjaOperator::kMultiply},
                                                   {"/", JinjaOperator::kDivide},
                                                   {"//", JinjaOperator::kFloorDivide},
                                                   {"%", JinjaOperator::kModulo}});
}

JinjaExpressionParser::Result JinjaExpressionParser::Power() {
  return LeftChain(&JinjaExpressionParser::PowerOperand, {{"**", JinjaOperator::kPower}});
}

JinjaExpressionParser::Result JinjaExpressionParser::Unary(bool with_filters) {
  const Level level(this);
  if (level.too_deep()) return TooDeep();
  const int line = cursor_.line();
  JinjaExpressionPtr value;
  if (cursor_.AtOperator("-") || cursor_.AtOperator("+")) {
    const JinjaOperator op =
        cursor_.AtOperator("-") ? JinjaOperator::kNegate : JinjaOperator::kPlus;
    cursor_.Skip();
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, Unary(false));
    value = MakeNode(Kind::kUnary, line, std::move(operand));
    value->operators.push_back(op);
  } else {
    ASSIGN_OR_RETURN(value, Primary());
  }
  ASSIGN_OR_RETURN(value, Postfix(std::move(value)));
  if (!with_filters) return value;
  return FiltersAndTests(std::move(value));
}

JinjaExpressionParser::Result JinjaExpressionParser::NameOrConstant(bool with_namespace) {
  const int line = cursor_.line();
  JinjaExpressionPtr node = MakeNode(Kind::kName, line);
  ASSIGN_OR_RETURN(node->name, cursor_.ExpectAnyName());
  const std::string_view name = node->name;
  if (name == "true" || name == "True") return MakeConstant(JinjaValue::Bool(true), line);
  if (name == "false" || name == "False") return MakeConstant(JinjaValue::Bool(false), line);
  if (name == "none" || name == "None") return MakeConstant(JinjaValue(), line);
  if (with_namespace && cursor_.TakeOperator(".")) {
    node->kind = Kind::kNamespaceTarget;
    ASSIGN_OR_RETURN(node->member, cursor_.ExpectAnyName());
  }
  return node;
}

JinjaExpressionParser::Result JinjaExpressionParser::Primary(bool with_namespace) {
  const JinjaToken& token = cursor_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return NameOrConstant(with_namespace);
    case TokenKind::kString: {
      std::string text;
      while (cursor_.current().kind == TokenKind::kString) {
        text.append(cursor_.current().text);
        cursor_.Skip();
      }
      return MakeConstant(JinjaValue::Scaffolding(std::move(text)), line);
    }
    case TokenKind::kInteger: {
      const JinjaValue value = JinjaValue::Int(token.integer);
      cursor_.Skip();
      return MakeConstant(value, line);
    }
    case TokenKind::kFloat: {
      const JinjaValue value = JinjaValue::Float(token.number);
      cursor_.Skip();
      return MakeConstant(value, line);
    }
    default:
      break;
  }
  if (cursor_.TakeOperator("(")) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr value, ExpressionOrTuple());
    RETURN_IF_ERROR(cursor_.ExpectOperator(")"));
    return value;
  }
  if (cursor_.AtOperator("[")) return ListLiteral();
  if (cursor_.AtOperator("{")) return DictLiteral();
  return cursor_.Fail("an expression");
}

JinjaExpressionParser::Result JinjaExpressionParser::ListLiteral() {
  JinjaExpressionPtr list = MakeNode(Kind::kList, cursor_.line());
  RETURN_IF_ERROR(cursor_.ExpectOperator("["));
  while (!cursor_.AtOperator("]")) {
    if (!list->parts.empty()) RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    if (cursor_.AtOperator("]")) break;
    ASSIGN_OR_RETURN(JinjaExpressionPtr item, Expression());
    list->parts.push_back(std::move(item));
  }
  RETURN_IF_ERROR(cursor_.ExpectOperator("]"));
  return list;
}

JinjaExpressionParser::Result JinjaExpressionParser::DictLiteral() {
  JinjaExpressionPtr dict = MakeNode(Kind::kDict, cursor_.line());
  RETURN_IF_ERROR(cursor_.ExpectOperator("{"));
  while (!cursor_.AtOperator("}")) {
    if (!dict->parts.empty()) RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    if (cursor_.AtOperator("}")) break;
    ASSIGN_OR_RETURN(JinjaExpressionPtr key, Expression());
    RETURN_IF_ERROR(cursor_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(JinjaExpressionPtr value, Expression());
    dict->parts.push_back(std::move(key));
    dict->parts.push_back(std::move(value));
  }
  RETURN_IF_ERROR(cursor_.ExpectOperator("}"));
  return dict;
}

JinjaExpressionParser::Result JinjaExpressionParser::Postfix(JinjaExpressionPtr value) {
  while (true) {
    if (!AddLink()) return TooDeep();
    if (cursor_.AtOperator(".") || cursor_.AtOperator("[")) {
      ASSIGN_OR_RETURN(value, Subscript(std::move(value)));
    } else if (cursor_.AtOperator("(")) {
      ASSIGN_OR_RETURN(value, Call(std::move(value)));
    } else {
      return value;
    }
  }
}

JinjaExpressionParser::Result JinjaExpressionParser::FiltersAndTests(JinjaExpressionPtr value) {
  while (true) {
    if (!AddLink()) return TooDeep();
    if (cursor_.AtOperator("|")) {
      cursor_.Skip();
      ASSIGN_OR_RETURN(value, Filter(std::move(value)));
    } else if (cursor_.AtName("is")) {
      ASSIGN_OR_RETURN(value, Test(std::move(value)));
    } else if (cursor_.AtOperator("(")) {
      ASSIGN_OR_RETURN(value, Call(std::move(value)));
    } else {
      return value;
    }
  }
}

JinjaExpressionParser::Result JinjaExpressionParser::Subscript(JinjaExpressionPtr value) {
  const int line = cursor_.line();
  if (cursor_.TakeOperator(".")) {
    if (cursor_.current().kind == TokenKind::kInteger) {
      JinjaExpressionPtr index = MakeConstant(JinjaValue::Int(cursor_.current().integer), line);
      cursor_.Skip();
      return MakeNode(Kind::kItem, line, std::move(value), std::move(index));
    }
    JinjaExpressionPtr attribute = MakeNode(Kind::kAttribute, line, std::move(value));
    ASSIGN_OR_RETURN(attribute->name, cursor_.ExpectAnyName());
    return attribute;
  }
  RETURN_IF_ERROR(cursor_.ExpectOperator("["));
  JinjaExpressionPtr start;
  if (!cursor_.AtOperator(":")) {
    ASSIGN_OR_RETURN(start, Expression());
    if (cursor_.TakeOperator("]")) {
      return MakeNode(Kind::kItem, line, std::move(value), std::move(start));
    }
  }
  JinjaExpressionPtr slice = MakeNode(Kind::kSlice, line, std::move(value), std::move(start));
  RETURN_IF_ERROR(cursor_.ExpectOperator(":"));
  for (int bound = 0; bound < 2; ++bound) {
    if (bound == 1 && !cursor_.TakeOperator(":")) break;
    JinjaExpressionPtr part;
    if (!cursor_.AtOperator(":") && !cursor_.AtOperator("]")) {
      ASSIGN_OR_RETURN(part, Expression());
    }
    slice->parts.push_back(std::move(part));
  }
  slice->parts.resize(4);
  RETURN_IF_ERROR(cursor_.ExpectOperator("]"));
  return slice;
}

JinjaExpressionParser::Result JinjaExpressionParser::Call(JinjaExpressionPtr value) {
  JinjaExpressionPtr call = MakeNode(Kind::kCall, cursor_.line(), std::move(value));
  RETURN_IF_ERROR(Arguments(call->arguments));
  return call;
}

absl::Status JinjaExpressionParser::Arguments(JinjaCallArguments& arguments) {
  RETURN_IF_ERROR(cursor_.ExpectOperator("("));
  bool first = true;
  while (!cursor_.AtOperator(")")) {
    if (!first) RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    first = false;
    if (cursor_.AtOperator(")")) break;
    const bool ended = arguments.rest != nullptr || arguments.named_rest != nullptr;
    if (cursor_.AtOperator("*") && !ended) {
      cursor_.Skip();
      ASSIGN_OR_RETURN(arguments.rest, Expression());
    } else if (cursor_.AtOperator("**") && arguments.named_rest == nullptr) {
      cursor_.Skip();
      ASSIGN_OR_RETURN(arguments.named_rest, Expression());
    } else if (cursor_.current().kind == TokenKind::kName && cursor_.next().IsOperator("=") &&
               arguments.named_rest == nullptr) {
      std::string name = cursor_.current().text;
      cursor_.Skip();
      cursor_.Skip();
      ASSIGN_OR_RETURN(JinjaExpressionPtr value, Expression());
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else if (!ended && arguments.named.empty()) {
      ASSIGN_OR_RETURN(JinjaExpressionPtr value, Expression());
      arguments.positional.push_back(std::move(value));
    } else {
      return JinjaSyntaxError(cursor_.line(), "invalid syntax for function call expression");
    }
  }
  return cursor_.ExpectOperator(")");
}

JinjaExpressionParser::Result JinjaExpressionParser::Filter(JinjaExpressionPtr value) {
  JinjaExpressionPtr filter = MakeNode(Kind::kFilter, cursor_.line(), std::move(value));
  ASSIGN_OR_RETURN(filter->name, cursor_.ExpectAnyName());
  filter->function = FindJinjaFilter(filter->name);
  if (filter->function == nullptr) return UnknownFunction("filter", filter->name, filter->line);
  if (cursor_.AtOperator("(")) RETURN_IF_ERROR(Arguments(filter->arguments));
  return filter;
}

JinjaExpressionParser::Result JinjaExpressionParser::Filters(JinjaExpressionPtr value,
                                                             bool first_without_bar) {
  while (first_without_bar || cursor_.AtOperator("|")) {
    if (!AddLink()) return TooDeep();
    if (!std::exchange(first_without_bar, false)) cursor_.Skip();
    ASSIGN_OR_RETURN(value, Filter(std::move(value)));
  }
  return value;
}

JinjaExpressionParser::Result JinjaExpressionParser::Test(JinjaExpressionPtr value) {
  const int line = cursor_.line();
  RETURN_IF_ERROR(cursor_.ExpectName("is"));
  const bool negated = cursor_.TakeName("not");
  JinjaExpressionPtr test = MakeNode(Kind::kTest, line, std::move(value));
  ASSIGN_OR_RETURN(test->name, cursor_.ExpectAnyName());
  test->function = FindJinjaTest(test->name);
  if (test->function == nullptr) return UnknownFunction("test", test->name, line);
  const TokenKind kind = cursor_.current().kind;
  const bool ends = cursor_.AtName("else") || cursor_.AtName("or") || cursor_.AtName("and");
  if (cursor_.AtOperator("(")) {
    RETURN_IF_ERROR(Arguments(test->arguments));
  } else if (cursor_.AtName("is")) {
    return JinjaSyntaxError(line, "tests cannot be chained with is");
  } else if (!ends && (kind == TokenKind::kName || kind == TokenKind::kString ||
                       kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
                       cursor_.AtOperator("[") || cursor_.AtOperator("{"))) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr argument, Primary());
    ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    test->arguments.positional.push_back(std::move(argument));
  }
  if (!negated) return test;
  return MakeNode(Kind::kNot, line, std::move(test));
}

}  // namespace cairn
