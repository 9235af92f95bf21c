#include "model/text_normalizer.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Kind = NormalizerStep::Kind;

std::string Apply(std::vector<NormalizerStep> steps, std::string_view text,
                  PartPosition position = PartPosition::kTextStart) {
  const auto normalizer = TextNormalizer::Create(std::move(steps));
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  const absl::StatusOr<std::string> result = (*normalizer)->Apply(text, position);
  EXPECT_TRUE(result.ok()) << result.status();
  return *result;
}

// Expected texts are those of Python's unicodedata.normalize.
TEST(UnicodeFormTest, GivesTheNormalFormsOfTheStandard) {
  struct Case {
    std::string text, nfc, nfd, nfkc, nfkd;
  };
  const std::vector<Case> cases = {
      {"plain", "plain", "plain", "plain", "plain"},
      {"e\u0301x", "\u00E9x", "e\u0301x", "\u00E9x", "e\u0301x"},
      {"a\u0301\u0323", "\u1EA1\u0301", "a\u0323\u0301", "\u1EA1\u0301", "a\u0323\u0301"},
      {"\uAC01", "\uAC01", "\u1100\u1161\u11A8", "\uAC01", "\u1100\u1161\u11A8"},
      {"\u1100\u1161\u11A8", "\uAC01", "\u1100\u1161\u11A8", "\uAC01", "\u1100\u1161\u11A8"},
      {"\u0958", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C"},
      {"\uFB01\u2460\uFF21", "\uFB01\u2460\uFF21", "\uFB01\u2460\uFF21", "fi1A", "fi1A"},
      {"\u1E9B\u0323", "\u1E9B\u0323", "\u017F\u0323\u0307", "\u1E69", "s\u0323\u0307"},
      {"\u212B\u00C5", "\u00C5\u00C5", "A\u030AA\u030A", "\u00C5\u00C5", "A\u030AA\u030A"},
      {">\u0338\u4F60\u597D", "\u226F\u4F60\u597D", ">\u0338\u4F60\u597D", "\u226F\u4F60\u597D",
       ">\u0338\u4F60\u597D"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(NormalizeUnicode(c.text, UnicodeForm::kNfc), c.nfc) << c.text;
    EXPECT_EQ(NormalizeUnicode(c.text, UnicodeForm::kNfd), c.nfd) << c.text;
    EXPECT_EQ(NormalizeUnicode(c.text, UnicodeForm::kNfkc), c.nfkc) << c.text;
    EXPECT_EQ(NormalizeUnicode(c.text, UnicodeForm::kNfkd), c.nfkd) << c.text;
  }
}

TEST(UnicodeFormTest, SortsAMegabyteOfMarksInItsStride) {
  std::string marks = "a", sorted = "a";
  constexpr int kCount = 250'000;
  for (int i = 0; i < kCount; ++i) marks += "\u0301\u0323";  // classes 230 and 220
  for (int i = 0; i < kCount; ++i) sorted += "\u0323";
  for (int i = 0; i < kCount; ++i) sorted += "\u0301";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(NormalizeUnicode(marks, UnicodeForm::kNfd), sorted);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(TextNormalizerTest, StepsFollowEachOther) {
  EXPECT_EQ(Apply({{.kind = Kind::kUnicodeForm, .form = UnicodeForm::kNfkc},
                   {.kind = Kind::kReplace, .from = "aa", .to = "b"}},
                  "\uFF41aaa"),
            "bb");
}

TEST(TextNormalizerTest, APrefixGoesWhereItsRuleSays) {
  using enum PartPosition;
  const auto prefixed = [](PrefixRule rule, PartPosition position) {
    return Apply({{.kind = Kind::kPrefix, .to = "_", .prefix_rule = rule}}, "x", position) == "_x";
  };
  for (const PartPosition position : {kTextStart, kAfterBoundaryToken, kInside}) {
    EXPECT_FALSE(prefixed(PrefixRule::kNever, position));
    EXPECT_EQ(prefixed(PrefixRule::kTextStart, position), position == kTextStart);
    EXPECT_EQ(prefixed(PrefixRule::kTextStartOrBoundary, position), position != kInside);
    EXPECT_TRUE(prefixed(PrefixRule::kEveryPart, position));
  }
  const NormalizerStep step{.kind = Kind::kPrefix,
                            .to = "_",
                            .prefix_rule = PrefixRule::kEveryPart,
                            .unless_present = true};
  EXPECT_EQ(Apply({step}, "_x"), "_x");
  EXPECT_EQ(Apply({step}, ""), "");
}

TEST(TextNormalizerTest, RefusesWhatMakesTextEndless) {
  const auto empty = TextNormalizer::Create({{.kind = Kind::kReplace, .from = "", .to = "x"}});
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("replaces the empty text"));
  const auto many = TextNormalizer::Create(std::vector<NormalizerStep>(
      kMaxNormalizerSteps + 1, {.kind = Kind::kReplace, .from = "a", .to = "b"}));
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("too many steps: count=17 limit=16"));
  const auto growing = TextNormalizer::Create(
      {{.kind = Kind::kReplace, .from = "a", .to = std::string(1 << 20, 'a')}});
  ASSERT_TRUE(growing.ok());
  const auto result = (*growing)->Apply(std::string(1000, 'a'), PartPosition::kTextStart);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("limit=268435456"));
}

}  // namespace
}  // namespace cairn
