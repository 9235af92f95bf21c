#include "model/stop_strings.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

StopStrings Make(const Texts& stops) {
  absl::StatusOr<StopStrings> result = StopStrings::Create(stops);
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

struct Result {
  std::string text;
  bool stopped = false;
  std::string stop;
  bool operator==(const Result&) const = default;
};

Result Stream(const Texts& stops, const Texts& deltas) {
  StopStrings matcher = Make(stops);
  Result result;
  for (const std::string& delta : deltas) {
    const StopStrings::Output output = matcher.Add(delta);
    EXPECT_TRUE(IsValidUtf8(output.text));
    if (result.stopped) {
      EXPECT_EQ(output.text, "") << "nothing may follow a stop";
    }
    result.text += output.text;
    result.stopped = output.stopped;
    result.stop = output.stop;
  }
  const StopStrings::Output last = matcher.Finish();
  result.text += last.text;
  result.stopped = last.stopped;
  result.stop = last.stop;
  return result;
}

TEST(StopStringsTest, FindsAStopThatBeginsAndEndsInsideDeltas) {
  EXPECT_EQ(Stream({"END"}, {"abcE", "N", "Dxyz"}), (Result{"abc", true, "END"}));
}

TEST(StopStringsTest, NothingOfAMatchIsEverGivenOut) {
  StopStrings matcher = Make({"STOP"});
  EXPECT_EQ(matcher.Add("go S").text, "go ");
  EXPECT_EQ(matcher.Add("TO").text, "");
  const StopStrings::Output output = matcher.Add("P now");
  EXPECT_EQ(output.text, "");
  EXPECT_TRUE(output.stopped);
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopStringsTest, ReleasesWhatWasHeldWhenTheMatchFails) {
  StopStrings matcher = Make({"STOP"});
  EXPECT_EQ(matcher.Add("STO").text, "");
  EXPECT_EQ(matcher.Add("RY").text, "STORY");
}

TEST(StopStringsTest, ReleasesWhatWasHeldAtTheEnd) {
  EXPECT_EQ(Stream({"STOP"}, {"x STO"}), (Result{"x STO", false, ""}));
}

TEST(StopStringsTest, FindsAStopThatOverlapsItself) {
  EXPECT_EQ(Stream({"aab"}, {"a", "a", "a", "b"}), (Result{"a", true, "aab"}));
  EXPECT_EQ(Stream({"aab"}, {"aaab"}), (Result{"a", true, "aab"}));
}

TEST(StopStringsTest, OfTwoThatBeginTogetherTheShorterStops) {
  EXPECT_EQ(Stream({"abc", "ab"}, {"xa", "bc"}), (Result{"x", true, "ab"}));
}

TEST(StopStringsTest, TheEarlierMatchWinsThoughItIsCompleteLater) {
  EXPECT_EQ(Stream({"bcde", "cd"}, {"abcd", "e"}), (Result{"a", true, "bcde"}));
  EXPECT_EQ(Stream({"bcde", "cd"}, {"abcd", "x"}), (Result{"ab", true, "cd"}));
  EXPECT_EQ(Stream({"bcde", "cd"}, {"abcd"}), (Result{"ab", true, "cd"})) << "decided at the end";
}

TEST(StopStringsTest, TheVeryFirstTextMayBeAStop) {
  EXPECT_EQ(Stream({"x"}, {"xyz"}), (Result{"", true, "x"}));
}

TEST(StopStringsTest, StopsMayHaveCharactersOfManyBytes) {
  EXPECT_EQ(Stream({"\xC3\xA9\xE4\xBD\xA0"}, {"a\xC3\xA9",
                                              "\xE4\xBD\xA0"
                                              "b"}),
            (Result{"a", true, "\xC3\xA9\xE4\xBD\xA0"}));
  EXPECT_EQ(Stream({"\xC3\xA9\xE4\xBD\xA0"}, {"a\xC3\xA9", "b"}), (Result{"a\xC3\xA9"
                                                                          "b",
                                                                          false, ""}));
}

TEST(StopStringsTest, WithoutStopsEverythingPassesAtOnce) {
  StopStrings matcher = Make({});
  EXPECT_EQ(matcher.Add("abc").text, "abc");
  EXPECT_EQ(matcher.Finish().text, "");
}

TEST(StopStringsTest, RefusesWhatCannotBeAStop) {
  const auto message = [](const Texts& stops) {
    return std::string(StopStrings::Create(stops).status().message());
  };
  EXPECT_THAT(message({"a", ""}), HasSubstr("stop string is empty: stop[1]"));
  EXPECT_THAT(message(Texts(17, "a")), HasSubstr("too many stop strings: count=17 limit=16"));
  EXPECT_THAT(message({std::string(1025, 'a')}), HasSubstr("bytes=1025 limit=1024"));
  EXPECT_THAT(message({"\xFF"}), HasSubstr("not UTF-8"));
  EXPECT_TRUE(StopStrings::Create(Texts(16, "a")).ok());
}

// The whole text at once, by definition.
Result ByDefinition(const Texts& stops, const std::string& text) {
  Result result{text, false, ""};
  size_t earliest = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t found = text.find(stop);
    if (found == std::string::npos) continue;
    const bool better = found < earliest || (found == earliest && stop.size() < result.stop.size());
    if (!better) continue;
    earliest = found;
    result = {text.substr(0, found), true, stop};
  }
  return result;
}

TEST(StopStringsTest, AgreesWithTheDefinitionHoweverTheTextIsCut) {
  const uint32_t seed = 42;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto word = [&](size_t max) {
    std::string text;
    for (size_t i = 1 + random() % max; i > 0; --i) text.push_back("abc"[random() % 3]);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    Texts stops, deltas;
    std::string text;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(word(5));
    for (size_t i = random() % 8; i > 0; --i) {
      deltas.push_back(word(4));
      text += deltas.back();
    }
    EXPECT_EQ(Stream(stops, deltas), ByDefinition(stops, text)) << text;
  }
}

}  // namespace
}  // namespace cairn
