// Small tokenizer files of every kind, with what the engines that define them make of texts.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/text_golden.h"

namespace cairn {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

std::string SmallFile(const std::string& name) {
  return std::string(CAIRN_TEST_DATA) + "/golden/tokenizers/small/" + name;
}

std::unique_ptr<Tokenizer> Open(const std::string& name) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromFile(SmallFile(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const absl::StatusOr<Ids> ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids();
}

// A file of tests/golden/tokenizers/small.
class SmallTokenizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = ReadGolden("tokenizers/pieces.json");
    ASSERT_TRUE(golden_.contains(GetParam()));
    tokenizer_ = Open(GetParam());
    ASSERT_NE(tokenizer_, nullptr);
  }

  // What the engine makes of text `i`: under `key` if it is another than otherwise.
  json Expected(const char* key, size_t i, json otherwise) const {
    const auto& changed = golden_[GetParam()][key];
    const auto found = changed.find(std::to_string(i));
    return found == changed.end() ? otherwise : json(*found);
  }

  nlohmann::ordered_json golden_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(SmallTokenizerTest, GivesTheIdsOfTheReference) {
  const auto& ids = golden_[GetParam()]["ids"];
  ASSERT_GT(ids.size(), 200u);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string text = golden_["texts"][i];
    const Ids want = ids[i], got = Encode(*tokenizer_, text);
    const auto is_control = [&](int32_t id) {
      return tokenizer_->is_special(id) && id != tokenizer_->FindAddedToken("<unk>");
    };
    if (std::any_of(want.begin(), want.end(), is_control)) {
      // Here plain text never becomes a control token, whatever a word of the vocabulary is.
      EXPECT_TRUE(std::none_of(got.begin(), got.end(), is_control)) << text;
    } else {
      EXPECT_EQ(got, want) << i << ": " << text;
    }
    if (!golden_[GetParam()].contains("ids_special")) continue;
    EXPECT_EQ(Encode(*tokenizer_, text, {.parse_special = true}),
              Expected("ids_special", i, ids[i]).get<Ids>())
        << i << ": " << text;
  }
}

TEST_P(SmallTokenizerTest, GivesTheTextOfTheReferenceAtOnceAndTokenByToken) {
  const auto& golden = golden_[GetParam()];
  const DetokenizerOptions options{.skip_special_tokens = false, .begins_text = true};
  const std::optional<int32_t> unknown = tokenizer_->FindAddedToken("<unk>");
  for (size_t i = 0; i < golden["ids"].size(); ++i) {
    const Ids ids = golden["ids"][i];
    if (unknown.has_value() && std::count(ids.begin(), ids.end(), *unknown) > 0) continue;
    const std::string want = Expected("decoded", i, golden_["texts"][i]);
    EXPECT_EQ(DecodeTokens(*tokenizer_, ids, options), want) << i;
    Detokenizer detokenizer(tokenizer_.get(), options);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.Add(id);
    EXPECT_EQ(streamed + detokenizer.Finish(), want) << i;
  }
}

TEST_P(SmallTokenizerTest, GivesTheBytesOfTheReferenceForEveryToken) {
  const auto& bytes = golden_[GetParam()]["bytes"];
  for (size_t id = 0; id < bytes.size(); ++id) {
    EXPECT_EQ(tokenizer_->TokenBytes(static_cast<int32_t>(id)), FromHex(bytes[id])) << id;
  }
}

TEST_P(SmallTokenizerTest, EncodesAMegabyteOfAnyTextInItsStride) {
  // A mistake that makes it quadratic takes minutes here, and more memory than there is.
  std::string words, marks, letters(1 << 20, 'a');
  while (words.size() < 1 << 20) words += "the theme of \xC3\xA9t\xC3\xA9 all words 123\n\n   ";
  while (marks.size() < 1 << 20) marks += "\xCC\x81\xCC\xA3";  // two classes of combining marks
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text : {words, marks, letters, std::string(1 << 20, ' ')}) {
    EXPECT_LE(Encode(*tokenizer_, text).size(), 3 * text.size());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

INSTANTIATE_TEST_SUITE_P(Files, SmallTokenizerTest,
                         ::testing::Values("bpe.model", "bpe_user.model", "bpe_unknown.model",
                                           "bpe_unused.model", "unigram.model", "unigram_map.model",
                                           "prepend.json", "first.json", "split.json",
                                           "replace.json", "unigram.json", "bytes.json",
                                           "tekken.json"),
                         [](const auto& file) {
                           std::string name = file.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(SentencePieceTest, ContentBecomesNoPieceOfTheUserButWhiteSpace) {
  for (const char* name : {"bpe_user.model", "unigram.model"}) {
    const auto tokenizer = Open(name);
    const std::optional<int32_t> separator = tokenizer->FindAddedToken("<sep>");
    ASSERT_TRUE(separator.has_value());
    EXPECT_THAT(Encode(*tokenizer, "a<sep>b"), ::testing::Contains(*separator));
    const auto as_content =
        tokenizer->EncodeSegments(std::vector<TextSegment>{{"a<sep>b <mask> <sep>", true}});
    ASSERT_TRUE(as_content.ok());
    for (const int32_t id : *as_content) EXPECT_NE(id, *separator) << name;
    const auto as_scaffolding =
        tokenizer->EncodeSegments(std::vector<TextSegment>{{"a<sep>", false}, {"<sep>", true}});
    ASSERT_TRUE(as_scaffolding.ok());
    EXPECT_EQ(std::count(as_scaffolding->begin(), as_scaffolding->end(), *separator), 1) << name;
  }
  const auto tokenizer = Open("bpe_user.model");
  const auto spaces = tokenizer->EncodeSegments(std::vector<TextSegment>{{"a    b\n\nc", true}});
  ASSERT_TRUE(spaces.ok());
  EXPECT_EQ(*spaces, Encode(*tokenizer, "a    b\n\nc"));
}

TEST(SentencePieceTest, TheSpaceBeforeATextStandsAtItsBeginningAndAfterABoundaryOnly) {
  const auto tokenizer = Open("bpe.model");
  const Ids hello = Encode(*tokenizer, "hello");
  const Ids inner = Encode(*tokenizer, "xhello");
  const EncodeOptions parse{.parse_special = true};
  Ids want = {*tokenizer->bos_id()};
  want.insert(want.end(), hello.begin(), hello.end());
  EXPECT_EQ(Encode(*tokenizer, "<s>hello", parse), want);
  // After another control token there is none.
  const auto masked = Open("bpe_user.model");
  EXPECT_EQ(Encode(*masked, "<mask>hello", parse).size(),
            Encode(*masked, "hello", parse).size() + 1);
}

TEST(SentencePieceTest, WhatContinuesATextKeepsItsSpace) {
  const auto tokenizer = Open("bpe.model");
  const Ids ids = Encode(*tokenizer, "hello");
  EXPECT_EQ(DecodeTokens(*tokenizer, ids), " hello");
  EXPECT_EQ(DecodeTokens(*tokenizer, ids, {.begins_text = true}), "hello");
}

TEST(SentencePieceTest, BytesThatAreNotUtf8BecomeByteTokens) {
  const auto tokenizer = Open("bpe.model");
  for (const std::string& text : {std::string("a\xFFhello\xC3"), std::string("\xF0\x9F\x98"),
                                  std::string("x\0y", 3), std::string("\x80\x80 \xED\xA0\x80")}) {
    std::string bytes;
    for (const int32_t id : Encode(*tokenizer, text)) bytes += tokenizer->TokenBytes(id);
    if (bytes.starts_with(' ')) bytes.erase(0, 1);
    EXPECT_EQ(bytes, text);
  }
}

// A message's field of bytes, and one of a number.
std::string BytesField(int number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  for (size_t length = bytes.size(); true; length >>= 7) {
    field.push_back(static_cast<char>(length < 0x80 ? length : (length & 0x7F) | 0x80));
    if (length < 0x80) break;
  }
  return field + bytes;
}
std::string NumberField(int number, uint8_t value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}
std::string Piece(const std::string& text, uint8_t type = 1) {
  return BytesField(1, BytesField(1, text) + NumberField(3, type));
}

TEST(SentencePieceTest, RefusesModelsThatAreBrokenOrUnknownWithOneClearLine) {
  const std::string pieces = Piece("<unk>", 2) + Piece("a");
  struct Case {
    std::string model;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", "no pieces"},
      {Piece("a"), "no piece stands for the unknown"},
      {pieces + Piece("b", 2), "two pieces stand for the unknown: ids=0 and 2"},
      {pieces + Piece(""), "piece is empty: id=2"},
      {pieces + Piece("b", 9), "type of a piece is unknown: type=9 id=2"},
      {pieces + Piece("a"), "token is there twice"},
      {pieces + Piece("\xFF"), "token is not UTF-8"},
      {pieces + Piece(std::string(5000, 'b')), "token is too long"},
      {pieces + BytesField(2, NumberField(3, 3)), "model_type is unknown: 3"},
      {pieces + BytesField(2, std::string("\xC0\x01\x01", 3)), "treat_whitespace_as_suffix is not"},
      {pieces + BytesField(2, std::string("\x98\x02\x01", 3)), "byte_fallback without a piece"},
      {pieces + BytesField(3, NumberField(5, 0)), "escape_whitespaces=false is not supported"},
      {pieces + BytesField(5, BytesField(2, "map")), "denormalizer_spec is not supported"},
      {pieces + BytesField(3, BytesField(2, "ab")), "precompiled_charsmap: ends inside"},
      {pieces + BytesField(3, BytesField(2, "\xFF\xFF\xFF\x7F")), "has a trie of a wrong size"},
      {pieces + "\x0A\x7F", "length of a field exceeds the message offset="},
      {pieces + "\x0B", "message is broken: type of a field"},
      {pieces + std::string(11, '\xFF'), "number of more than 64 bits"},
      {pieces + NumberField(2, 1), "a part of the model has another type"},
  };
  for (const Case& c : cases) {
    absl::StatusOr<TokenizerSpec> spec = TokenizerSpecFromSentencePiece(c.model);
    absl::Status status = spec.status();
    if (spec.ok()) status = Tokenizer::Create(*std::move(spec)).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(SentencePieceTest, ATrieThatGoesInCirclesEnds) {
  // Units whose labels and offsets lead on for ever; nothing may be read outside.
  for (const uint32_t unit : {0x00000561u, 0xFFFFFF61u, 0x80000061u, 0x00000061u, 0x00000161u}) {
    std::string trie;
    for (int i = 0; i < 256; ++i) trie.append(reinterpret_cast<const char*>(&unit), sizeof(unit));
    const uint32_t bytes = static_cast<uint32_t>(trie.size());
    const std::string map = std::string(reinterpret_cast<const char*>(&bytes), 4) + trie + "xyz";
    absl::StatusOr<TokenizerSpec> spec = TokenizerSpecFromSentencePiece(
        Piece("<unk>", 2) + Piece("a") + BytesField(3, BytesField(2, map)));
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto tokenizer = Tokenizer::Create(*std::move(spec));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    (void)(*tokenizer)->Encode(std::string(1 << 16, 'a'), {});
  }
}

// The pieces of a model file in a GGUF file.
class GgufPiecesTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& name, const std::string& model,
      const std::function<void(GgufWriter&, std::vector<int32_t>& types)>& change) {
    const std::string bytes = ReadWholeFile(SmallFile(name));
    const absl::StatusOr<TokenizerSpec> spec = TokenizerSpecFromSentencePiece(bytes);
    EXPECT_TRUE(spec.ok()) << spec.status();
    std::vector<int32_t> types;
    for (size_t id = 0; id < spec->tokens.size(); ++id) {
      constexpr int32_t kTypes[] = {1, 4, 5, 6, 3};  // in the order of PieceType
      const bool is_unknown = static_cast<int32_t>(id) == spec->unknown_id;
      types.push_back(is_unknown ? 2 : kTypes[static_cast<int>(spec->piece_types[id])]);
    }
    GgufWriter writer;
    writer.AddString("tokenizer.ggml.model", model);
    writer.AddStrings("tokenizer.ggml.tokens", spec->tokens);
    std::vector<float> scores(spec->scores.begin(), spec->scores.end());
    if (change) change(writer, types);
    writer.AddArray<float>("tokenizer.ggml.scores", 6, scores);
    writer.AddArray<int32_t>("tokenizer.ggml.token_type", 5, types);
    const std::string path = ::testing::TempDir() + "/tokenizer_pieces_test.gguf";
    const std::vector<std::byte> file = writer.File();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()), static_cast<int64_t>(file.size()));
    return Tokenizer::FromFile(path);
  }

  void ExpectTheIdsOf(const std::string& name, const Tokenizer& tokenizer) {
    const auto golden = ReadGolden("tokenizers/pieces.json");
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const std::string text = golden["texts"][i];
      EXPECT_EQ(Encode(tokenizer, text), golden[name]["ids"][i].get<Ids>()) << i << ": " << text;
    }
  }
};

TEST_F(GgufPiecesTest, GivesTheIdsOfTheModelFile) {
  const auto bpe = Load("bpe.model", "llama", {});
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  ExpectTheIdsOf("bpe.model", **bpe);
  EXPECT_EQ((*bpe)->bos_id(), 1);
  EXPECT_EQ((*bpe)->eos_id(), 2);
  EXPECT_TRUE((*bpe)->add_bos());
  const auto user = Load("bpe_user.model", "llama", [](GgufWriter& writer, auto&) {
    writer.AddBool("tokenizer.ggml.add_space_prefix", false);
  });
  ASSERT_TRUE(user.ok()) << user.status();
  ExpectTheIdsOf("bpe_user.model", **user);
}

TEST_F(GgufPiecesTest, GivesTheIdsOfAUnigramModelFile) {
  const auto tokenizer = Load("unigram.model", "t5", [](GgufWriter& writer, auto&) {
    writer.AddBool("tokenizer.ggml.add_space_prefix", true);
  });
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ExpectTheIdsOf("unigram.model", **tokenizer);
  EXPECT_FALSE((*tokenizer)->add_bos());
  EXPECT_TRUE((*tokenizer)->add_eos());
}

TEST_F(GgufPiecesTest, RefusesUnknownTypesAndWrongLengths) {
  const auto type = Load("bpe.model", "llama", [](auto&, auto& types) { types[7] = 9; });
  EXPECT_THAT(std::string(type.status().message()),
              HasSubstr("token_type is unknown for pieces: type=9 id=7"));
  const auto length = Load("bpe.model", "llama", [](auto&, auto& types) { types.pop_back(); });
  EXPECT_THAT(std::string(length.status().message()), HasSubstr("another length than the tokens"));
}

TEST(RankFileTest, RefusesWhatIsBrokenOrUnknownWithOneClearLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"YQ== 0\n", "not known for a file of this number of tokens: 1 known: 128000, 151643"},
      {"YQ== 0\nYg== 0\n", "line 2: rank is there twice: id=0"},
      {"YQ== 1048576\n", "line 1: rank is out of range: id=1048576"},
      {"YQ== -1\n", "rank is out of range: id=-1"},
      {"YQ==\n", "line 1 is no token and its rank"},
      {"Y!!= 0\n", "token is not base64"},
      {" 0\n", "token is not base64"},
  };
  for (const auto& [ranks, message] : cases) {
    EXPECT_THAT(std::string(TokenizerSpecFromRanks(ranks).status().message()), HasSubstr(message));
  }
}

TEST(TekkenTest, RefusesWhatIsBrokenOrUnknownWithOneClearLine) {
  const json good = json::parse(ReadWholeFile(SmallFile("tekken.json")));
  struct Case {
    std::string pointer;
    json value;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"/config/pattern", 5, "config.pattern is not a string"},
      {"/config/default_vocab_size", -1, "config.default_vocab_size is not a number up to"},
      {"/config/default_vocab_size", 1 << 21, "config.default_vocab_size is not a number up to"},
      {"/config/default_vocab_size", 10, "vocab is no array of as many tokens"},
      {"/config/default_vocab_size", 5000, "vocab is no array of as many tokens"},
      {"/vocab/3/rank", 4, "vocab has another token than that of this rank: rank=3"},
      {"/vocab/3/token_bytes", "!", "token is not base64"},
      {"/special_tokens", nullptr, "config.version is unknown for a file without special_tokens"},
      {"/special_tokens/1/rank", 10, "config.rank is not a number up to 9"},
      {"/special_tokens/1/token_str", nullptr, "special token has no text: id=1"},
      {"/special_tokens", 5, "special_tokens is not an array"},
  };
  for (const Case& c : cases) {
    json changed = good;
    changed[json::json_pointer(c.pointer)] = c.value;
    EXPECT_THAT(std::string(TokenizerSpecFromTekken(changed.dump()).status().message()),
                HasSubstr(c.message));
  }
  json old = good;
  old["config"]["version"] = "v3";
  old.erase("special_tokens");
  old["config"]["default_num_special_tokens"] = 30;
  const absl::StatusOr<TokenizerSpec> spec = TokenizerSpecFromTekken(old.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->added_tokens.size(), 20u);
}

TEST(TokenizerPathTest, AFolderIsSearchedForEveryKind) {
  const std::filesystem::path folder = ::testing::TempDir() + "/tokenizer_path_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const auto none = Tokenizer::FromFile(folder.string());
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound) << none.status();
  std::filesystem::copy_file(SmallFile("bpe_user.model"), folder / "tokenizer.model");
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"add_bos_token": false, "eos_token": "<mask>",
             "added_tokens_decoder": {"4": {"content": "<sep>", "special": true},
                                      "500": {"content": "<extra>", "special": true}}})";
  const auto tokenizer = Tokenizer::FromFile(folder.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_FALSE((*tokenizer)->add_bos());
  EXPECT_EQ((*tokenizer)->FindAddedToken("<extra>"), 500);
  // A piece of the user in the model file, but a control token by the configuration.
  ASSERT_EQ((*tokenizer)->FindAddedToken("<sep>"), 4);
  EXPECT_TRUE((*tokenizer)->is_special(4));
  EXPECT_THAT(Encode(**tokenizer, "a<sep>"), ::testing::Not(::testing::Contains(4)));
  EXPECT_THAT(Encode(**tokenizer, "a<sep>", {.parse_special = true}), ::testing::Contains(4));
  EXPECT_EQ((*tokenizer)->eos_id(), (*tokenizer)->FindAddedToken("<mask>"));
  std::filesystem::copy_file(SmallFile("first.json"), folder / "tokenizer.json");
  const auto json_first = Tokenizer::FromFile(folder.string());
  ASSERT_TRUE(json_first.ok()) << json_first.status();
  EXPECT_NE((*json_first)->vocab_size(), (*tokenizer)->vocab_size());
}

}  // namespace
}  // namespace cairn
