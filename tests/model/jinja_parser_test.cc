#include "model/jinja_parser.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/jinja_syntax.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

std::vector<JinjaToken> Lex(std::string_view source) {
  absl::StatusOr<std::vector<JinjaToken>> tokens = LexJinja(source);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *std::move(tokens);
}

std::vector<std::string> Texts(std::string_view source) {
  std::vector<std::string> texts;
  for (const JinjaToken& token : Lex(source)) {
    if (!token.text.empty()) texts.push_back(token.text);
  }
  return texts;
}

TEST(JinjaLexerTest, ControlsWhiteSpaceAroundTags) {
  EXPECT_THAT(Texts("a \n  {% x %}\n b {{- y -}} c"), ElementsAre("a \n", "x", " b", "y", "c"));
  EXPECT_THAT(Texts("a  {%+ x +%}\nb"), ElementsAre("a  ", "x", "\nb"));
}

TEST(JinjaLexerTest, CountsLinesThroughTagsAndComments) {
  EXPECT_EQ(Lex("a\n{# b\n #}\n{% raw %}\n\n{% endraw %}{{ x }}").back().line, 6);
}

TEST(JinjaLexerTest, ABraceInsideAnExpressionDoesNotEndIt) {
  EXPECT_THAT(Texts("{{ {'a': {'b': 1}} }}"),
              ElementsAre("{", "a", ":", "{", "b", ":", "1", "}", "}"));
}

TEST(JinjaTokenCursorTest, NeverPassesTheEnd) {
  JinjaTokenCursor cursor(Lex(""));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cursor.current().kind, JinjaToken::Kind::kEnd);
    EXPECT_EQ(cursor.next().kind, JinjaToken::Kind::kEnd);
    cursor.Skip();
  }
  EXPECT_EQ(cursor.ExpectName("x").message(), "line 1: expected 'x', got end of the template");
}

TEST(JinjaParserTest, OperatorsBindAsInTheReference) {
  using Kind = JinjaExpression::Kind;
  const absl::StatusOr<JinjaBody> body = ParseJinja("{{ not a.b + 1 | f if c else d ~ e }}");
  EXPECT_EQ(body.status().message(), "line 1: no filter named 'f'");
  const absl::StatusOr<JinjaBody> good = ParseJinja("{{ not a.b + 1 | abs if c else d ~ e }}");
  ASSERT_TRUE(good.ok()) << good.status();
  const JinjaExpression& condition = *good->at(0).value;
  ASSERT_EQ(condition.kind, Kind::kCondition);
  EXPECT_EQ(condition.parts[2]->kind, Kind::kConcat);
  const JinjaExpression& value = *condition.parts[1];
  ASSERT_EQ(value.kind, Kind::kNot);
  ASSERT_EQ(value.parts[0]->kind, Kind::kBinary);
  EXPECT_EQ(value.parts[0]->parts[1]->kind, Kind::kFilter);
}

}  // namespace
}  // namespace cairn
