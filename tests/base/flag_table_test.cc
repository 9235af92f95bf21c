#include "base/flag_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class FlagTableTest : public testing::Test {
 protected:
  FlagTableTest() {
    table_.Add("json", &json_, "print JSON");
    table_.Add("model", &model_, "FILE", "what to load");
    table_.AddChoice("isa", &isa_, {"avx2", "avx512", "auto"}, "instructions");
    table_.AddChoice("block-tokens", &block_tokens_, {16, 32}, "of a block");
    table_.Add("prompt", &prompt_, "TEXT", "what to say");
    table_.Add("stop", &stop_, "TEXT", "where to end");
    table_.Add("tp", &tp_, 1, 64, "ranks");
    table_.Add("top-p", &top_p_, 0.0f, 1.0f, "mass");
    table_.AddBytes("memory", &memory_, "of the pool");
  }
  // The error of one command line.
  std::string Refusal(const std::vector<std::string>& args) {
    const absl::Status status = table_.Parse(args).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << testing::PrintToString(args);
    return std::string(status.message());
  }

  FlagTable table_;
  bool json_ = false;
  std::string model_, isa_ = "auto";
  std::optional<std::string> prompt_;
  std::vector<std::string> stop_;
  int32_t tp_ = 1, block_tokens_ = 16;
  float top_p_ = 1;
  int64_t memory_ = 0;
};

TEST_F(FlagTableTest, TakesValuesBehindASpaceOrAnEqualsSign) {
  const auto rest = table_.Parse({"--model", "a b", "--tp=4", "--top-p", "0.5", "--memory=1.5GiB",
                                  "--isa=avx2", "--block-tokens=32", "--prompt", "", "--json"});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(*rest, IsEmpty());
  EXPECT_EQ(model_, "a b");
  EXPECT_EQ(tp_, 4);
  EXPECT_EQ(top_p_, 0.5f);
  EXPECT_EQ(memory_, (int64_t{3} << 30) / 2);
  EXPECT_EQ(isa_, "avx2");
  EXPECT_EQ(block_tokens_, 32);
  EXPECT_EQ(prompt_, "");
  EXPECT_TRUE(json_);
}

TEST_F(FlagTableTest, WithoutFlagsTheDefaultsStay) {
  EXPECT_TRUE(table_.Parse({}).ok());
  EXPECT_EQ(tp_, 1);
  EXPECT_EQ(isa_, "auto");
  EXPECT_EQ(prompt_, std::nullopt);
}

TEST_F(FlagTableTest, ASwitchTakesAValueOnlyAfterAnEqualsSign) {
  EXPECT_THAT(*table_.Parse({"--json", "false"}), ElementsAre("false"));
  EXPECT_TRUE(json_);
  EXPECT_TRUE(table_.Parse({"--json=false"}).ok());
  EXPECT_FALSE(json_);
  EXPECT_THAT(Refusal({"--json=maybe"}), HasSubstr("maybe"));
}

TEST_F(FlagTableTest, AValueMayLookLikeAFlagOrHoldAnEqualsSign) {
  EXPECT_TRUE(table_.Parse({"--prompt", "--tp", "--model=a=b"}).ok());
  EXPECT_EQ(prompt_, "--tp");
  EXPECT_EQ(model_, "a=b");
}

TEST_F(FlagTableTest, AListGrowsWithEveryUse) {
  EXPECT_TRUE(table_.Parse({"--stop", "a", "--stop=b"}).ok());
  EXPECT_THAT(stop_, ElementsAre("a", "b"));
}

TEST_F(FlagTableTest, GivesBackWhatIsNoFlagInOrder) {
  EXPECT_THAT(*table_.Parse({"x", "--tp", "2", "-", "y", "--", "--json", "--"}),
              ElementsAre("x", "-", "y", "--json", "--"));
  EXPECT_FALSE(json_);
}

TEST_F(FlagTableTest, NamesTheFlagItsValueAndWhatIsAllowed) {
  EXPECT_THAT(Refusal({"--nonsense"}), HasSubstr("--nonsense"));
  EXPECT_THAT(Refusal({"--nonsense=1"}), HasSubstr("--nonsense"));
  EXPECT_THAT(Refusal({"--model"}), HasSubstr("--model"));
  for (const char* value : {"0", "65", "-1", "two", "", "1.5", "99999999999999999999", "2x"}) {
    const std::string message = Refusal({"--tp", value});
    EXPECT_THAT(message, HasSubstr("--tp"));
    EXPECT_THAT(message, HasSubstr(std::string("'") + value + "'"));
    EXPECT_THAT(message, HasSubstr("1..64"));
  }
  for (const char* value : {"-0.1", "1.1", "nan", "inf", "x", ""}) {
    EXPECT_THAT(Refusal({"--top-p", value}), HasSubstr("0..1")) << value;
  }
  EXPECT_THAT(Refusal({"--isa", "sse"}), HasSubstr("avx2|avx512|auto"));
  for (const char* wrong : {"17", "0", "32x", ""})
    EXPECT_THAT(Refusal({"--block-tokens", wrong}), HasSubstr("16|32"));
}

TEST_F(FlagTableTest, HelpShowsEveryFlagWithItsDefault) {
  const std::string help = table_.Help();
  for (const char* part : {"--json ", "--model FILE", "--tp N", "(default 1)", "(default auto)"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
  EXPECT_THAT(help, Not(HasSubstr("--memory BYTES\n\n")));
}

TEST(CommandLineTest, HelpIsShownWhateverElseIsWrong) {
  for (const char* help : {"--help", "-h"}) {
    int32_t number = 7;
    FlagTable flags;
    flags.Add("number", &number, 0, 9, "a digit");
    testing::internal::CaptureStdout();
    const auto line = ReadCommandLine("usage: it", &flags, {"--number", "x", "one", help}, 0);
    const std::string out = testing::internal::GetCapturedStdout();
    ASSERT_TRUE(line.ok());
    EXPECT_TRUE(line->done);
    EXPECT_EQ(out.rfind("usage: it\n", 0), 0u) << out;
    EXPECT_NE(out.find("--number N"), std::string::npos) << out;
    EXPECT_NE(out.find("--help"), std::string::npos) << out;
  }
}

TEST(CommandLineTest, TakesAsManyArgumentsAsItSays) {
  FlagTable flags;
  const auto line = ReadCommandLine("usage: it", &flags, {"one", "--", "--help"}, 2);
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(line->done);
  EXPECT_EQ(line->rest, (std::vector<std::string>{"one", "--help"}));
  FlagTable again;
  const auto refused = ReadCommandLine("usage: it", &again, {"one", "two", "three"}, 1);
  EXPECT_EQ(refused.status().message(), "unexpected argument 'two'");
}

TEST_F(FlagTableTest, AnAddressHasAHostAndAPort) {
  std::string endpoint = "127.0.0.1:7070";
  FlagTable table;
  table.AddHostPort("endpoint", &endpoint, "whom to ask");
  EXPECT_TRUE(table.Parse({"--endpoint", "[::1]:80"}).ok());
  EXPECT_EQ(endpoint, "[::1]:80");
  for (const char* text : {"", "nonsense", ":80", "host:", "host:0", "host:65536", "1.2.3:80"}) {
    const absl::Status status = table.Parse({"--endpoint", text}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("--endpoint"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(endpoint, "[::1]:80");
}

TEST(ParseBytesTest, KnowsTheUnits) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("4096"), 4096);
  EXPECT_EQ(*ParseBytes("64KiB"), 65536);
  EXPECT_EQ(*ParseBytes("0.5MiB"), 1 << 19);
  EXPECT_EQ(*ParseBytes("2TiB"), int64_t{2} << 40);
}

TEST(ParseBytesTest, RefusesAnythingElse) {
  for (const char* text :
       {"", "KiB", "-1", "1KB", "1 GiB", "1.2.3", "nan", "1e3", "99999999999TiB", "GiB1"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(FlagTableDeathTest, TheSameFlagTwiceIsABug) {
  FlagTable table;
  bool value = false;
  table.Add("json", &value, "h");
  EXPECT_DEATH(table.Add("json", &value, "h"), "flag twice");
}

}  // namespace
}  // namespace cairn
