#include "model/jinja_template.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/jinja_json.h"
#include "tests/model/text_golden.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::CivilSecond kNow(2025, 3, 9, 14, 5, 7);

using Variables = std::vector<std::pair<std::string, JinjaValue>>;

Variables FromJson(const nlohmann::ordered_json& object) {
  Variables variables;
  for (const auto& [name, value] : object.items()) {
    const absl::StatusOr<JinjaValue> parsed = ParseJinjaJson(value.dump());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    variables.emplace_back(name, *parsed);
  }
  return variables;
}

absl::StatusOr<std::string> Render(const std::string& source, Variables variables = {}) {
  const absl::StatusOr<std::unique_ptr<JinjaTemplate>> parsed = JinjaTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<JinjaText> text = (*parsed)->Render(std::move(variables), kNow);
  if (!text.ok()) return text.status();
  return text->bytes();
}

std::string ErrorOf(const std::string& source, Variables variables = {}) {
  const absl::StatusOr<std::string> text = Render(source, std::move(variables));
  EXPECT_FALSE(text.ok()) << *text;
  return std::string(text.status().message());
}

void ExpectGolden(const nlohmann::ordered_json& golden, const Variables& variables) {
  ASSERT_GT(golden["cases"].size(), 50u);
  for (const auto& c : golden["cases"]) {
    const std::string source = c["source"];
    const absl::StatusOr<std::string> text = Render(source, variables);
    if (c.contains("error")) {
      EXPECT_FALSE(text.ok()) << source << " gives " << *text;
      continue;
    }
    ASSERT_TRUE(text.ok()) << source << ": " << text.status();
    EXPECT_EQ(*text, c["expected"].get<std::string>()) << source;
  }
}

TEST(JinjaTemplateTest, MatchesTheReferenceOnExpressions) {
  const auto golden = ReadGolden("templates/expressions.json");
  Variables variables = FromJson(golden["context"]);
  variables.emplace_back("bos_token", JinjaValue::Scaffolding(golden["bos_token"]));
  variables.emplace_back("eos_token", JinjaValue::Scaffolding(golden["eos_token"]));
  ExpectGolden(golden, variables);
}

TEST(JinjaTemplateTest, MatchesTheReferenceOnTheLanguage) {
  const auto golden = ReadGolden("templates/language.json");
  ExpectGolden(golden, FromJson(golden["context"]));
  for (const std::string source : golden["refused"]) {
    const auto parsed = JinjaTemplate::Parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    EXPECT_THAT(std::string(parsed.status().message()), StartsWith("line 1: ")) << source;
  }
}

TEST(JinjaTemplateTest, SaysWhichConstructIsNotSupportedAndWhere) {
  const auto code = [](const std::string& source) {
    return JinjaTemplate::Parse(source).status().code();
  };
  EXPECT_EQ(ErrorOf("a\nb{{ x | frobnicate }}"), "line 2: no filter named 'frobnicate'");
  EXPECT_EQ(ErrorOf("\n\n{% if x is shiny %}{% endif %}"), "line 3: no test named 'shiny'");
  EXPECT_EQ(ErrorOf("{% include 'x' %}"), "line 1: tag 'include' is not supported");
  EXPECT_EQ(ErrorOf("{% flub %}"), "line 1: encountered unknown tag 'flub'");
  EXPECT_EQ(code("{% import 'x' as y %}"), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code("{{ x | nope }}"), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code("{{ x "), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("\xFF"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(kMaxTemplateNesting, ' ')), absl::StatusCode::kOk);
}

TEST(JinjaTemplateTest, AnErrorWhileRenderingSaysTheLine) {
  EXPECT_EQ(ErrorOf("a\n{% if 1 %}\n{{ x.y }}{% endif %}"), "line 3: 'x' is undefined");
  EXPECT_EQ(ErrorOf("{% for i in [1] %}\n{{ 'a' + i }}{% endfor %}"),
            "line 2: can only concatenate str (not \"int\") to str");
}

TEST(JinjaTemplateTest, RaiseExceptionGivesTheTemplatesOwnWords) {
  EXPECT_EQ(ErrorOf("\n{{ raise_exception('roles must ' ~ 'alternate') }}"),
            "roles must alternate");
}

TEST(JinjaTemplateTest, TheGenerationTagChangesNothing) {
  EXPECT_EQ(*Render("a{% generation %}b{{ 1 }}{% endgeneration %}c"), "ab1c");
}

TEST(JinjaTemplateTest, DeepNestingIsRefusedNotFollowed) {
  const auto repeat = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  EXPECT_THAT(ErrorOf("{{ " + repeat("(", 50000) + "1" + repeat(")", 50000) + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf("{{ " + repeat("[", 50000) + repeat("]", 50000) + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf("{{ " + repeat("-", 100000) + "1 }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf("{{ " + repeat("not ", 100000) + "1 }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf("{{ 1" + repeat(" + 1", 100000) + " }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf("{{ x" + repeat(".y", 100000) + " }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf("{{ x" + repeat("|upper", 100000) + " }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(ErrorOf(repeat("{% if 1 %}", 50000)), HasSubstr("nested too deeply"));
  EXPECT_EQ(*Render("{{ 1" + repeat(" + 1", 99) + " }}"), "100");
  EXPECT_EQ(*Render(repeat("{% if 1 %}", 60) + "x" + repeat("{% endif %}", 60)), "x");
}

TEST(JinjaTemplateTest, EveryLimitEndsARunawayTemplate) {
  struct Case {
    std::string source, message;
  };
  const std::vector<Case> cases = {
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
       "too much work: limit="},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself too deeply: limit=1000"},
      {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
       "calls itself too deeply: limit=1000"},
      {"{{ 'a' * 1000000000000 }}", "text is too long"},
      {"{{ [1] * 1000000000000 }}", "list is too long"},
      {"{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x "
       "+ ns.x %}{% endfor %}",
       "limit="},
      {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor "
       "%}",
       "nested too deeply: limit=100"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% "
       "endfor %}{{ ns.x }}",
       "holds too much"},
      {"{{ range(10 ** 30) }}", "too large"},
      {"{{ range(0, 1000000) }}", "range is too big: limit=100000"},
      {"{{ 10 ** 10000 }}", "integer is too large"},
      {"{{ 2 ** 126 * 4 }}", "integer is too large"},
      {"{{ '%999999999d' % 1 }}", "number is too large: limit=10000"},
      {"{{ '{:>999999999}'.format(1) }}", "number is too large: limit=10000"},
      {"{{ 'x'.center(1000000000000) }}", "text is too long"},
      {"{{ 'x' | indent(1000000000) }}", "width is too large: limit=1000"},
      {"{{ [1] | tojson(indent=1000000) }}", "indent is too large: limit=64"},
      {"{{ ('a' * 1000000).replace('a', 'a' * 1000000) }}", "text is too long"},
      {"{{ (['a' * 1000000] * 1000) | join }}", "limit="},
      {"{{ [1] | batch(10 ** 12, 0) | list }}", "out of range"},
      {"{% for i in range(100000) %}{% set x %}{{ 'a' * 100000 }}{% endset %}{% endfor %}",
       "too much work"},
  };
  for (const Case& c : cases) EXPECT_THAT(ErrorOf(c.source), HasSubstr(c.message)) << c.source;
}

TEST(JinjaTemplateTest, ALargeConversationStaysWithinTheLimits) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (int i = 0; i < 500; ++i) {
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(4000, 'x')}});
  }
  const std::string source =
      "{% for m in messages %}{% if loop.index0 == messages | length - 1 %}last{% endif %}"
      "{{ '<' + m['role'] + '>' + (m.content | trim) }}{% endfor %}";
  const absl::StatusOr<std::string> text = Render(source, FromJson({{"messages", messages}}));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_GT(text->size(), 500u * 4000u);
}

TEST(JinjaTemplateTest, AMacroKeepsTheVariablesAroundIt) {
  EXPECT_EQ(
      *Render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}"
              "{% set ns.f = f %}{% endfor %}{{ ns.f() }}"),
      "2");
}

TEST(JinjaTemplateTest, ALoopThatIsOverMayStillBeAskedAbout) {
  EXPECT_EQ(
      *Render("{% set ns = namespace() %}{% for i in [1, 2] %}{% set ns.l = loop %}{% endfor %}"
              "{{ ns.l.length }} {{ ns.l.nextitem is defined }} {{ ns.l.previtem is defined }}"),
      "2 False False");
  EXPECT_THAT(ErrorOf("{{ '%c' % 55296 }}"), HasSubstr("out of range"));
}

TEST(JinjaJsonTest, RefusesWhatIsNotOrdinaryJson) {
  const auto message = [](const std::string& json) {
    return std::string(ParseJinjaJson(json).status().message());
  };
  EXPECT_THAT(message("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("\"\\ud800\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("\"\xFF\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message(std::string(100000, '[')), HasSubstr("nested too deeply: limit=64"));
  EXPECT_THAT(message(std::string(kMaxVariablesBytes + 1, ' ')), HasSubstr("limit="));
  EXPECT_THAT(message("1" + std::string(60, '0')), HasSubstr("integer is too large"));
}

TEST(JinjaJsonTest, KeepsOrderAndLargeIntegers) {
  const absl::StatusOr<JinjaValue> value = ParseJinjaJson(
      R"({"z": 1, "a": 123456789012345678901234567890, "z": -18446744073709551616})");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(JinjaStr(*value).bytes(),
            "{'z': -18446744073709551616, 'a': 123456789012345678901234567890}");
}

}  // namespace
}  // namespace cairn
