#include "model/json_text.h"

#include <chrono>

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

std::string Refusal(std::string_view text, JsonLimits limits = {}) {
  const auto json = ParseJson(text, limits);
  return json.ok() ? "" : std::string(json.status().message());
}

TEST(JsonTextTest, RefusesWhatIsTooLongTooDeepOrNoJson) {
  EXPECT_EQ(Refusal(R"({"a": [1, {"a": 2}], "b": {"a": 3}})"), "");
  EXPECT_THAT(Refusal("[1, 2]", {.max_bytes = 5}), HasSubstr("bytes=6 limit=5"));
  EXPECT_THAT(Refusal("[[[]]]", {.max_depth = 2}), HasSubstr("depth=3 limit=2"));
  for (const char* text : {"", "[1", "{\"a\"}", "[1] 2", "nul", "\"\xFF\""}) {
    EXPECT_THAT(Refusal(text), HasSubstr("not valid JSON: byte=")) << text;
  }
  // Numbers that JSON does not have, as some writers put them.
  EXPECT_THAT(Refusal(R"({"a": NaN})"), HasSubstr("byte=7 bytes=10"));
}

TEST(JsonTextTest, RefusesAKeyThatIsTwiceInOneObject) {
  EXPECT_THAT(Refusal(R"([{"a": 1, "b": {"a": 1}, "a": 2}])"), HasSubstr("the key \"a\" twice"));
  EXPECT_EQ(Refusal(R"([{"a": 1}, {"a": 2}])"), "");
}

TEST(JsonTextTest, AValueInAMessageIsOneShortLine) {
  EXPECT_EQ(ShortJson({{"a", {1, "x\ny"}}}), R"({"a":[1,"x\ny"]})");
  EXPECT_EQ(ShortJson(std::vector<int>(1000, 1)), "a list of 1000");
  EXPECT_LT(ShortJson(std::string(1000, 'x')).size(), 100u);
  EXPECT_EQ(ShortJson("\xFF\xE2\x80\xAE"), "\"\uFFFD\\u{202e}\"");
}

TEST(JsonTextTest, AListOfManyObjectsCostsWhatItsLengthSays) {
  std::string text = "[{}";
  for (int i = 0; i < 400'000; ++i) text += ",{}";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Refusal(text + "]"), "");
  // The square of their number takes minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace cairn
