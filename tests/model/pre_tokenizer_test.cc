#include "model/pre_tokenizer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer_spec.h"
#include "tests/model/text_golden.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(const std::vector<SplitStage>& stages, std::string_view text) {
  const auto splitter = PreTokenizer::Create(stages);
  EXPECT_TRUE(splitter.ok()) << splitter.status();
  std::vector<std::string> pieces;
  const PreTokenizer::Matcher matcher;
  const absl::Status status = (*splitter)->Split(
      text, matcher, [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(PreTokenizerTest, MatchesAndWhatLiesBetweenThemArePieces) {
  EXPECT_THAT(Split({{"b+"}}, "abbcb"), ElementsAre("a", "bb", "c", "b"));
  EXPECT_THAT(Split({{"b+"}, {"c"}}, "abbccb"), ElementsAre("a", "bb", "c", "c", "b"));
  EXPECT_THAT(Split({}, "ab"), ElementsAre("ab"));
  EXPECT_THAT(Split({{"b+"}}, ""), ElementsAre());
}

TEST(PreTokenizerTest, AMatchMayJoinItsNeighbour) {
  const auto split = [](SplitBehavior behavior, std::string_view text) {
    return Split({{"-", behavior}}, text);
  };
  using enum SplitBehavior;
  EXPECT_THAT(split(kMergedWithPrevious, "a-b--c-"), ElementsAre("a-", "b-", "-", "c-"));
  EXPECT_THAT(split(kMergedWithPrevious, "-a"), ElementsAre("-", "a"));
  EXPECT_THAT(split(kMergedWithNext, "a-b--c-"), ElementsAre("a", "-b", "-", "-c", "-"));
  EXPECT_THAT(split(kMergedWithNext, "--"), ElementsAre("-", "-"));
}

TEST(PreTokenizerTest, AnEmptyMatchIsNoPiece) {
  EXPECT_THAT(Split({{"x*"}}, "\xC3\xA9xxa"), ElementsAre("\xC3\xA9", "xx", "a"));
}

TEST(PreTokenizerTest, ALaterStageSeesOnlyItsPiece) {
  // The space is at the end of its piece, so it is not held back for the word.
  EXPECT_THAT(
      Split({{std::string(kDigitSplitPattern)}, {std::string(kGpt2SplitPattern)}}, "a  12 b"),
      ElementsAre("a", "  ", "1", "2", " b"));
}

TEST(PreTokenizerTest, WhiteSpaceIsUnicodes) {
  // U+180E is no white space since Unicode 6.3; U+0085 is.
  EXPECT_THAT(Split({{"\\s+"}},
                    "a\xE1\xA0\x8E"
                    "b"),
              ElementsAre("a\xE1\xA0\x8E"
                          "b"));
  EXPECT_THAT(Split({{"\\s+"}},
                    "a\xC2\x85"
                    "b"),
              ElementsAre("a", "\xC2\x85", "b"));
  EXPECT_THAT(Split({{"[^\\s]+"}},
                    "a\xC2\xA0"
                    "b"),
              ElementsAre("a", "\xC2\xA0", "b"));
  EXPECT_THAT(Split({{"[]\\s]+"}}, "a] b"), ElementsAre("a", "] ", "b"));
}

TEST(PreTokenizerTest, RefusesWhatIsReadInTwoWays) {
  EXPECT_EQ(PreTokenizer::Create({{"[a[bc]]"}}).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(PreTokenizer::Create({{"[a&&b]"}}).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(PreTokenizer::Create({{"(a"}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(PreTokenizer::Create({{"[[:alpha:]\\s]"}}).ok());
}

// Byte lengths of pieces as the `tokenizers` package cuts them.
TEST(PreTokenizerTest, MatchesTheReferenceForEveryRule) {
  const auto golden = ReadGolden("tokenizers/small.json");
  const nlohmann::json json = nlohmann::json::parse(golden["tokenizer"].get<std::string>());
  const std::string llama3 = json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  const std::map<std::string, std::vector<SplitStage>> rules = {
      {"gpt2", {{std::string(kGpt2SplitPattern)}}},
      {"digits", {{std::string(kDigitSplitPattern)}, {std::string(kGpt2SplitPattern)}}},
      {"llama3", {{llama3}}}};
  std::map<int, std::string> texts;
  for (const auto& s : ReadGolden("tokenizers/strings.json")) texts[s["i"]] = s["text"];
  for (const auto& [rule, stages] : rules) {
    ASSERT_GT(golden["pieces"][rule].size(), 150u);
    for (const auto& c : golden["pieces"][rule]) {
      std::vector<int> lengths;
      for (const std::string& piece : Split(stages, texts.at(c[0]))) {
        lengths.push_back(static_cast<int>(piece.size()));
      }
      EXPECT_EQ(lengths, c[1].get<std::vector<int>>()) << rule << " of string " << c[0];
    }
  }
}

}  // namespace
}  // namespace cairn
