#include "model/jinja_parser.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "model/jinja_syntax.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using Kind = JinjaStatement::Kind;
using TokenKind = JinjaToken::Kind;

// Tags of Jinja that chat templates have no use for.
constexpr std::string_view kRefusedTags[] = {"autoescape", "block",   "do",    "extends", "from",
                                             "import",     "include", "trans", "debug"};

class StatementParser {
 public:
  explicit StatementParser(std::vector<JinjaToken> tokens)
      : cursor_(std::move(tokens)), expressions_(&cursor_) {}

  absl::StatusOr<JinjaBody> Template() {
    JinjaBody body;
    RETURN_IF_ERROR(Body({}, body));
    return body;
  }

 private:
  using Names = std::vector<std::string_view>;

  JinjaStatement Make(Kind kind, int line) {
    JinjaStatement statement;
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  bool AtAnyName(const Names& names) const {
    for (const std::string_view name : names) {
      if (cursor_.AtName(name)) return true;
    }
    return false;
  }

  // Statements up to a tag named in `ends`, which is then the current token; without ends, up to
  // the end of the template.
  absl::Status Body(const Names& ends, JinjaBody& body) {
    const JinjaExpressionParser::Level level(&expressions_);
    if (level.too_deep()) return expressions_.TooDeep();
    while (true) {
      const JinjaToken& token = cursor_.current();
      if (token.kind == TokenKind::kEnd) {
        if (ends.empty()) return absl::OkStatus();
        return JinjaSyntaxError(token.line, absl::StrCat("unexpected end of template: no {% ",
                                                         std::string(ends.back()), " %}"));
      }
      if (token.kind == TokenKind::kData) {
        body.push_back(Make(Kind::kText, token.line));
        body.back().text = token.text;
        cursor_.Skip();
      } else if (token.kind == TokenKind::kOutputBegin) {
        cursor_.Skip();
        body.push_back(Make(Kind::kOutput, token.line));
        ASSIGN_OR_RETURN(body.back().value, expressions_.ExpressionOrTuple());
        RETURN_IF_ERROR(cursor_.Expect(TokenKind::kOutputEnd, "end of the print statement"));
      } else {
        cursor_.Skip();  // kBlockBegin
        if (AtAnyName(ends)) return absl::OkStatus();
        RETURN_IF_ERROR(Statement(body));
        RETURN_IF_ERROR(EndOfTag());
      }
    }
  }

  absl::Status EndOfTag() { return cursor_.Expect(TokenKind::kBlockEnd, "end of the tag"); }

  // The end of the opening tag, then statements up to one of `ends`.
  absl::Status TagBody(const Names& ends, JinjaBody& body) {
    cursor_.TakeOperator(":");
    RETURN_IF_ERROR(EndOfTag());
    return Body(ends, body);
  }

  // The same up to the one tag `end`, which is passed.
  absl::Status WholeBody(std::string_view end, JinjaBody& body) {
    RETURN_IF_ERROR(TagBody({end}, body));
    return cursor_.ExpectName(end);
  }

  absl::Status Statement(JinjaBody& body) {
    using Parse = absl::Status (StatementParser::*)(JinjaStatement&);
    static constexpr std::pair<std::string_view, std::pair<Kind, Parse>> kTags[] = {
        {"for", {Kind::kFor, &StatementParser::For}},
        {"if", {Kind::kIf, &StatementParser::If}},
        {"set", {Kind::kSet, &StatementParser::Set}},
        {"macro", {Kind::kMacro, &StatementParser::Macro}},
        {"call", {Kind::kCallBlock, &StatementParser::CallBlock}},
        {"filter", {Kind::kFilterBlock, &StatementParser::FilterBlock}},
        {"with", {Kind::kWith, &StatementParser::With}},
        {"generation", {Kind::kBody, &StatementParser::Generation}},
        {"break", {Kind::kBreak, &StatementParser::Leave}},
        {"continue", {Kind::kContinue, &StatementParser::Leave}},
    };
    const int line = cursor_.line();
    if (cursor_.AtName("print")) return Print(body);
    for (const auto& [name, rule] : kTags) {
      if (!cursor_.TakeName(name)) continue;
      JinjaStatement statement = Make(rule.first, line);
      RETURN_IF_ERROR((this->*rule.second)(statement));
      body.push_back(std::move(statement));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::string name, cursor_.ExpectAnyName());
    for (const std::string_view refused : kRefusedTags) {
      if (name != refused) continue;
      return absl::UnimplementedError(
          absl::StrCat("line ", line, ": tag '", name, "' is not supported"));
    }
    return absl::UnimplementedError(
        absl::StrCat("line ", line, ": encountered unknown tag '", Printable(name), "'"));
  }

  absl::Status Print(JinjaBody& body) {
    cursor_.Skip();
    bool first = true;
    while (cursor_.current().kind != TokenKind::kBlockEnd) {
      if (!first) RETURN_IF_ERROR(cursor_.ExpectOperator(","));
      first = false;
      body.push_back(Make(Kind::kOutput, cursor_.line()));
      ASSIGN_OR_RETURN(body.back().value, expressions_.Expression());
    }
    return absl::OkStatus();
  }

  absl::Status For(JinjaStatement& loop) {
    ASSIGN_OR_RETURN(loop.target, expressions_.Target(false, "in"));
    RETURN_IF_ERROR(cursor_.ExpectName("in"));
    ASSIGN_OR_RETURN(loop.value, expressions_.ExpressionOrTuple(false, "recursive"));
    if (cursor_.TakeName("if")) {
      ASSIGN_OR_RETURN(loop.condition, expressions_.Expression());
    }
    loop.recursive = cursor_.TakeName("recursive");
    ++loops_;
    RETURN_IF_ERROR(TagBody({"else", "endfor"}, loop.body));
    --loops_;
    if (cursor_.TakeName("endfor")) return absl::OkStatus();
    cursor_.Skip();
    return WholeBody("endfor", loop.otherwise);
  }

  absl::Status If(JinjaStatement& statement) {
    while (true) {
      statement.branches.emplace_back();
      JinjaStatement::Branch& branch = statement.branches.back();
      ASSIGN_OR_RETURN(branch.condition, expressions_.ExpressionOrTuple(false));
      RETURN_IF_ERROR(TagBody({"elif", "else", "endif"}, branch.body));
      if (cursor_.TakeName("endif")) return absl::OkStatus();
      if (cursor_.TakeName("else")) return WholeBody("endif", statement.otherwise);
      cursor_.Skip();  // elif
    }
  }

  absl::Status Set(JinjaStatement& set) {
    ASSIGN_OR_RETURN(set.target, expressions_.Target(true));
    if (cursor_.TakeOperator("=")) {
      ASSIGN_OR_RETURN(set.value, expressions_.ExpressionOrTuple());
      return absl::OkStatus();
    }
    set.kind = Kind::kSetBlock;
    ASSIGN_OR_RETURN(set.filter, expressions_.Filters(nullptr, false));
    return WholeBody("endset", set.body);
  }

  absl::Status Parameters(JinjaStatement& statement) {
    RETURN_IF_ERROR(cursor_.ExpectOperator("("));
    while (!cursor_.AtOperator(")")) {
      if (!statement.parameters.empty()) RETURN_IF_ERROR(cursor_.ExpectOperator(","));
      JinjaParameter parameter;
      ASSIGN_OR_RETURN(parameter.name, cursor_.ExpectAnyName());
      const int line = cursor_.line();
      if (cursor_.TakeOperator("=")) {
        ASSIGN_OR_RETURN(parameter.when_missing, expressions_.Expression());
      } else if (!statement.parameters.empty() &&
                 statement.parameters.back().when_missing != nullptr) {
        return JinjaSyntaxError(line, "non-default argument follows default argument");
      }
      statement.parameters.push_back(std::move(parameter));
    }
    return cursor_.ExpectOperator(")");
  }

  // A loop around a macro is not a loop inside it.
  absl::Status MacroBody(std::string_view end, JinjaBody& body) {
    const int loops = std::exchange(loops_, 0);
    RETURN_IF_ERROR(WholeBody(end, body));
    loops_ = loops;
    return absl::OkStatus();
  }

  absl::Status Macro(JinjaStatement& macro) {
    ASSIGN_OR_RETURN(macro.name, cursor_.ExpectAnyName());
    RETURN_IF_ERROR(Parameters(macro));
    return MacroBody("endmacro", macro.body);
  }

  absl::Status CallBlock(JinjaStatement& call) {
    if (cursor_.AtOperator("(")) RETURN_IF_ERROR(Parameters(call));
    ASSIGN_OR_RETURN(call.value, expressions_.Expression());
    if (call.value->kind != JinjaExpression::Kind::kCall) {
      return JinjaSyntaxError(call.line, "expected call");
    }
    return MacroBody("endcall", call.body);
  }

  absl::Status FilterBlock(JinjaStatement& block) {
    ASSIGN_OR_RETURN(block.filter, expressions_.Filters(nullptr, true));
    return WholeBody("endfilter", block.body);
  }

  absl::Status With(JinjaStatement& with) {
    while (cursor_.current().kind != TokenKind::kBlockEnd) {
      if (!with.bindings.empty()) RETURN_IF_ERROR(cursor_.ExpectOperator(","));
      ASSIGN_OR_RETURN(JinjaExpressionPtr target, expressions_.Target(false));
      RETURN_IF_ERROR(cursor_.ExpectOperator("="));
      ASSIGN_OR_RETURN(JinjaExpressionPtr value, expressions_.Expression());
      with.bindings.emplace_back(std::move(target), std::move(value));
    }
    return WholeBody("endwith", with.body);
  }

  // Marks what a model is trained to write; it changes no text.
  absl::Status Generation(JinjaStatement& block) { return WholeBody("endgeneration", block.body); }

  absl::Status Leave(JinjaStatement& statement) {
    if (loops_ > 0) return absl::OkStatus();
    return JinjaSyntaxError(statement.line, "break or continue outside of a loop");
  }

  JinjaTokenCursor cursor_;
  JinjaExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<JinjaBody> ParseJinja(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<JinjaToken> tokens, LexJinja(source));
  return StatementParser(std::move(tokens)).Template();
}

}  // namespace cairn
