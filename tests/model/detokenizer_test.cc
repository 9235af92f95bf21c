#include "model/detokenizer.h"

#include <filesystem>
#include <random>

#include "gtest/gtest.h"
#include "model/utf8.h"
#include "tests/model/text_golden.h"

namespace cairn {
namespace {

class DetokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(vocabulary_.spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  // The small vocabulary's ids 0..255 are the bytes.
  static std::vector<int32_t> ByteIds(std::string_view bytes) {
    std::vector<int32_t> ids;
    for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }

  // Streams the ids, checks every delta, and returns all of them together.
  static std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                            DetokenizerOptions options = {}) {
    Detokenizer detokenizer(&tokenizer, options);
    std::string text;
    for (const int32_t id : ids) {
      const std::string delta = detokenizer.Add(id);
      EXPECT_TRUE(IsValidUtf8(delta));
      text += delta;
    }
    text += detokenizer.Finish();
    EXPECT_EQ(text, DecodeTokens(tokenizer, ids, options));
    EXPECT_FALSE(detokenizer.pending());
    return text;
  }

  SmallVocabulary vocabulary_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(DetokenizerTest, HoldsBackAnIncompleteCharacter) {
  Detokenizer detokenizer(tokenizer_.get());
  EXPECT_EQ(detokenizer.Add(0xF0), "");
  EXPECT_EQ(detokenizer.Add(0x9F), "");
  EXPECT_EQ(detokenizer.Add(0x98), "");
  EXPECT_TRUE(detokenizer.pending());
  EXPECT_EQ(detokenizer.Add(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(DetokenizerTest, ACharacterCutAtTheEndIsOneReplacement) {
  for (const std::string cut : {"\xC3", "\xE4\xBD", "\xF0\x9F\x98"}) {
    EXPECT_EQ(Stream(*tokenizer_, ByteIds("a" + cut)), "a\xEF\xBF\xBD");
  }
}

// Expected texts are those of Python's bytes.decode("utf-8", "replace").
TEST_F(DetokenizerTest, InvalidBytesAreReplacedByMaximalSubparts) {
  const std::string bad = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xFF", bad},
      {"a\xC3(", "a" + bad + "("},
      {"\xE2\x82", bad},
      {"\xE2\x28\xA1", bad + "(" + bad},
      {"\xF0\x80\x80\x41", bad + bad + bad + "A"},
      {"\xED\xA0\x80", bad + bad + bad},
      {"\xF4\x90\x80\x80", bad + bad + bad + bad},
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
       "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d"},
      {"\xC0\xAF", bad + bad},
      {"\xF0\x9F\xF0\x9F\x98\x80", bad + "\xF0\x9F\x98\x80"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(SanitizeUtf8(bytes), text);
    EXPECT_EQ(Stream(*tokenizer_, ByteIds(bytes)), text);
  }
}

TEST_F(DetokenizerTest, DeltasTogetherAreTheOneShotDecodeForAnyBytes) {
  const uint32_t seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  // Bytes from which characters, overlong forms and surrogates are likely.
  const std::string alphabet = "a\x80\x8F\x90\x9F\xA0\xBF\xC2\xC3\xE0\xE2\xED\xEF\xF0\xF4\xFF";
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    for (size_t i = random() % 12; i > 0; --i)
      bytes.push_back(alphabet[random() % alphabet.size()]);
    EXPECT_TRUE(IsValidUtf8(Stream(*tokenizer_, ByteIds(bytes))));
  }
}

TEST_F(DetokenizerTest, LeavesOutControlTokensUnlessAsked) {
  const std::vector<int32_t> ids = {vocabulary_.begin, 'a', vocabulary_.end, vocabulary_.think,
                                    'b'};
  EXPECT_EQ(Stream(*tokenizer_, ids), "a<think>b");
  EXPECT_EQ(Stream(*tokenizer_, ids, {.skip_special_tokens = false}), "<|begin|>a<|end|><think>b");
}

TEST_F(DetokenizerTest, AControlTokenInsideACharacterDoesNotBreakIt) {
  EXPECT_EQ(Stream(*tokenizer_, {0xC3, vocabulary_.end, 0xA9}), "\xC3\xA9");
}

TEST_F(DetokenizerTest, AnUnknownIdIsNoText) {
  EXPECT_EQ(Stream(*tokenizer_, {'a', -1, 1 << 30, 'b'}), "ab");
}

TEST_F(DetokenizerTest, IsNewAfterFinish) {
  Detokenizer detokenizer(tokenizer_.get());
  EXPECT_EQ(detokenizer.Add(0xC3), "");
  EXPECT_EQ(detokenizer.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.Add('a'), "a");
}

// Token sequences of a real tokenizer that divide characters, with the bytes of each token.
TEST_F(DetokenizerTest, StreamsGoldenTokenSequences) {
  std::map<int, std::string> texts;
  for (const auto& s : ReadGolden("tokenizers/strings.json"))
    texts[s["i"]] = FromHex(s["utf8_hex"]);
  const auto golden = ReadGolden("tokenizers/smollm2.json");
  ASSERT_GT(golden["stream"].size(), 5u);
  for (const auto& c : golden["stream"]) {
    SmallVocabulary vocabulary;
    std::vector<int32_t> ids;
    for (const std::string hex : c["pieces"]) {
      const std::string token = EncodeByteLevelText(FromHex(hex));
      auto& tokens = vocabulary.spec.tokens;
      auto found = std::find(tokens.begin(), tokens.end(), token);
      if (found == tokens.end()) found = tokens.insert(tokens.end(), token);
      ids.push_back(static_cast<int32_t>(found - tokens.begin()));
    }
    vocabulary.spec.added_tokens.clear();
    vocabulary.spec.bos_id = vocabulary.spec.eos_id = std::nullopt;
    const auto tokenizer = Tokenizer::Create(vocabulary.spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(Stream(**tokenizer, ids), texts.at(c["i"]));
  }
}

}  // namespace
}  // namespace cairn
