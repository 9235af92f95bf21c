// The vocabularies of real models against ids and bytes that the engines that define them gave.
// tests/get_tokenizers.py fetches the files; a case is skipped where its file is not there.
#include <filesystem>
#include <map>

#include "gtest/gtest.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "tests/model/text_golden.h"

namespace cairn {
namespace {

using Ids = std::vector<int32_t>;

struct Vocabulary {
  const char* name;
  const char* file;  // in the cache
  int32_t size;
};

void PrintTo(const Vocabulary& vocabulary, std::ostream* out) { *out << vocabulary.name; }

class TokenizerGoldenTest : public ::testing::TestWithParam<Vocabulary> {
 protected:
  void SetUp() override {
    const std::string path = std::string(CAIRN_MODEL_CACHE) + "/" + GetParam().file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromFile(path);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    golden_ = ReadGolden(std::string("tokenizers/") + GetParam().name + ".json");
    ASSERT_TRUE(golden_.is_object());
    for (const auto& s : ReadGolden("tokenizers/strings.json")) {
      texts_[s["i"]] = FromHex(s["utf8_hex"]);
    }
  }

  Ids Encode(std::string_view text, EncodeOptions options) const {
    const absl::StatusOr<Ids> ids = tokenizer_->Encode(text, options);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : Ids();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::ordered_json golden_;
  std::map<int, std::string> texts_;
};

TEST_P(TokenizerGoldenTest, GivesTheIdsOfTheReference) {
  EXPECT_EQ(tokenizer_->vocab_size(), GetParam().size);
  ASSERT_GT(golden_["cases"].size(), 190u);
  for (const auto& c : golden_["cases"]) {
    const std::string& text = texts_.at(c["i"]);
    EXPECT_EQ(Encode(text, {}), c["ids"].get<Ids>()) << c["i"];
    if (!c.contains("ids_special")) continue;
    EXPECT_EQ(Encode(text, {.parse_special = true}), c["ids_special"].get<Ids>()) << c["i"];
  }
}

TEST_P(TokenizerGoldenTest, GivesTheBytesOfTheReference) {
  ASSERT_GT(golden_["pieces"].size(), 50u);
  for (const auto& piece : golden_["pieces"]) {
    EXPECT_EQ(tokenizer_->TokenBytes(piece[0]), FromHex(piece[1])) << piece[0];
  }
}

TEST_P(TokenizerGoldenTest, StreamsTextWhoseTokensDivideCharacters) {
  ASSERT_GT(golden_["stream"].size(), 5u);
  for (const auto& c : golden_["stream"]) {
    Detokenizer detokenizer(tokenizer_.get());
    std::string text, bytes;
    for (size_t i = 0; i < c["ids"].size(); ++i) {
      const int32_t id = c["ids"][i];
      EXPECT_EQ(tokenizer_->TokenBytes(id), FromHex(c["pieces"][i])) << id;
      bytes += FromHex(c["pieces"][i]);
      text += detokenizer.Add(id);
    }
    EXPECT_EQ(text + detokenizer.Finish(), SanitizeUtf8(bytes)) << c["i"];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Vocabularies, TokenizerGoldenTest,
    ::testing::Values(Vocabulary{"smollm2", "smollm2-135m-instruct-q4_1.gguf", 49152},
                      Vocabulary{"qwen2", "models/qwen2.5-coder-0.5b-q4.gguf", 151936},
                      Vocabulary{"gemma3", "models/gemma3-270m-q4_k_m.gguf", 262144},
                      Vocabulary{"mistral_v1", "tokenizers/mistral_v1.model", 32000},
                      Vocabulary{"mistral_v3", "tokenizers/mistral_v3.model", 32768},
                      Vocabulary{"tekken_240911", "tokenizers/tekken_240911.json", 131072},
                      Vocabulary{"llama3", "tokenizers/llama3.model", 128256},
                      Vocabulary{"qwen_tiktoken", "tokenizers/qwen_tiktoken.tiktoken", 151851},
                      Vocabulary{"deepseek", "tokenizers/deepseek.json", 129280}),
    [](const auto& vocabulary) { return std::string(vocabulary.param.name); });

}  // namespace
}  // namespace cairn
