// The two halves of the template parser: expressions here, statements on top of them.
// Thread: one call each.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/jinja_lexer.h"
#include "model/jinja_syntax.h"

namespace cairn {

// Walks the tokens; the last one is kEnd and is never passed.
class JinjaTokenCursor {
 public:
  explicit JinjaTokenCursor(std::vector<JinjaToken> tokens) : tokens_(std::move(tokens)) {}

  const JinjaToken& current() const { return tokens_[at_]; }
  const JinjaToken& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  void Skip() { at_ = std::min(at_ + 1, tokens_.size() - 1); }

  bool AtOperator(std::string_view op) const { return current().IsOperator(op); }
  bool AtName(std::string_view name) const { return current().IsName(name); }
  bool TakeOperator(std::string_view op);
  bool TakeName(std::string_view name);
  // Errors: InvalidArgument says what was expected and what is there.
  absl::Status ExpectOperator(std::string_view op);
  absl::Status ExpectName(std::string_view name);
  absl::Status Expect(JinjaToken::Kind kind, std::string_view what);
  absl::StatusOr<std::string> ExpectAnyName();
  absl::Status Fail(std::string_view expected) const;

 private:
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
};

class JinjaExpressionParser {
 public:
  using Result = absl::StatusOr<JinjaExpressionPtr>;

  explicit JinjaExpressionParser(JinjaTokenCursor* cursor) : cursor_(*cursor) {}

  Result Expression(bool with_condition = true);
  // One expression, or several with commas between them: a tuple. Ends before `end` too.
  Result ExpressionOrTuple(bool with_condition = true, std::string_view end = "");
  // What may be assigned to: names, tuples of names and, with_namespace, "ns.member".
  Result Target(bool with_namespace, std::string_view end = "");
  // "|name(...)" once or more, applied to `value`, which is null in a filter block. Without a value
  // the first bar is missing in {% filter name %}.
  Result Filters(JinjaExpressionPtr value, bool first_without_bar);
  absl::Status Arguments(JinjaCallArguments& arguments);

  // Guards against stack overflow, here, in the evaluator and when the tree is deleted: a level of
  // nesting until it goes out of scope, links of chains inside it included.
  class Level {
   public:
    explicit Level(JinjaExpressionParser* parser) : parser_(*parser), saved_(parser->depth_) {
      parser_.depth_ += kLinksPerLevel;
    }
    ~Level() { parser_.depth_ = saved_; }
    bool too_deep() const { return parser_.depth_ > kMaxTemplateNesting * kLinksPerLevel; }

   private:
    JinjaExpressionParser& parser_;
    const int saved_;
  };
  absl::Status TooDeep() const;

 private:
  static constexpr int kLinksPerLevel = 4;

  // One more link of a chain such as a + b + c; false if there are too many.
  bool AddLink() { return ++depth_ <= kMaxTemplateNesting * kLinksPerLevel; }
  Result Condition();
  Result Or();
  Result And();
  Result Not();
  Result Compare();
  Result Sum();
  Result Concat();
  Result Product();
  Result Power();
  Result Unary(bool with_filters);
  Result Primary(bool with_namespace = false);
  Result NameOrConstant(bool with_namespace);
  Result ListLiteral();
  Result DictLiteral();
  Result Postfix(JinjaExpressionPtr value);
  Result FiltersAndTests(JinjaExpressionPtr value);
  Result Subscript(JinjaExpressionPtr value);
  Result Call(JinjaExpressionPtr value);
  Result Filter(JinjaExpressionPtr value);
  Result Test(JinjaExpressionPtr value);
  // A chain of operators of one rank, grouped from the left.
  using Operators = std::vector<std::pair<std::string_view, JinjaOperator>>;
  Result LeftChain(Result (JinjaExpressionParser::*operand)(), const Operators& operators);
  Result PowerOperand() { return Unary(true); }

  JinjaTokenCursor& cursor_;
  int depth_ = 0;
};

}  // namespace cairn
