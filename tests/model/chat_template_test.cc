#include "model/chat_template.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint.h"
#include "tests/model/text_golden.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Segments = std::vector<TextSegment>;

constexpr absl::CivilSecond kNow(2025, 3, 9, 14, 5, 7);

std::string SmolLm2Path() {
  return std::string(CAIRN_MODEL_CACHE) + "/smollm2-135m-instruct-q4_1.gguf";
}

std::unique_ptr<ChatTemplate> Make(std::string_view source) {
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat =
      ChatTemplate::Create(source, {.bos_token = "<BOS>", .eos_token = "<EOS>"});
  EXPECT_TRUE(chat.ok()) << chat.status();
  return *std::move(chat);
}

Segments Render(std::string_view source, const nlohmann::ordered_json& variables) {
  const absl::StatusOr<Segments> segments = Make(source)->RenderVariables(variables.dump(), kNow);
  EXPECT_TRUE(segments.ok()) << segments.status();
  return segments.ok() ? *segments : Segments();
}

// Content between brackets, so that an expectation reads as a text.
std::string Marked(const Segments& segments) {
  std::string text;
  for (const TextSegment& s : segments) text += s.is_content ? "[" + s.text + "]" : s.text;
  return text;
}

// The golden renderings of one template; its text may come from elsewhere.
void ExpectGolden(const std::string& name, const std::string& source) {
  const auto conversations = ReadGolden("templates/conversations.json");
  const std::unique_ptr<ChatTemplate> chat = Make(source);
  int compared = 0;
  for (const auto& rendering : ReadGolden("templates/renderings.json")) {
    if (rendering["template"] != name) continue;
    ++compared;
    nlohmann::ordered_json talk = conversations[rendering["conversation"].get<std::string>()];
    const std::string messages = talk["messages"].dump();
    const std::string tools = talk.contains("tools") ? talk["tools"].dump() : "";
    const absl::StatusOr<Segments> segments =
        chat->Render({.messages_json = messages,
                      .tools_json = tools,
                      .add_generation_prompt = talk.value("add_generation_prompt", true),
                      .now = kNow});
    SCOPED_TRACE(rendering["conversation"].get<std::string>());
    if (rendering.contains("error")) {
      ASSERT_FALSE(segments.ok());
      if (rendering["error"] == "TemplateError") {
        EXPECT_EQ(std::string(segments.status().message()), rendering["message"]);
      }
      continue;
    }
    ASSERT_TRUE(segments.ok()) << segments.status();
    EXPECT_EQ(JoinSegments(*segments), rendering["expected"].get<std::string>());
  }
  EXPECT_GT(compared, 10);
}

TEST(ChatTemplateTest, MatchesTheReferenceOnEveryTemplate) {
  const auto templates = ReadGolden("templates/templates.json");
  int texts = 0;
  for (const auto& [name, source] : templates.items()) {
    if (!source.is_string()) continue;
    SCOPED_TRACE(name);
    ExpectGolden(name, source);
    ++texts;
  }
  EXPECT_GE(texts, 4);
}

TEST(ChatTemplateTest, MatchesTheReferenceOnSmolLm2sOwn) {
  if (!std::filesystem::exists(SmolLm2Path())) GTEST_SKIP() << "no " << SmolLm2Path();
  const auto checkpoint = Checkpoint::Open(SmolLm2Path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const absl::StatusOr<std::string> source = ChatTemplate::SourceFromCheckpoint(**checkpoint);
  ASSERT_TRUE(source.ok()) << source.status();
  ExpectGolden("gguf:smollm2-135m-instruct-q4_1.gguf", *source);
}

TEST(ChatTemplateTest, SmolLm2sPromptHasControlTokensOfTheTemplateOnly) {
  if (!std::filesystem::exists(SmolLm2Path())) GTEST_SKIP() << "no " << SmolLm2Path();
  const auto checkpoint = Checkpoint::Open(SmolLm2Path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto chat = ChatTemplate::FromCheckpoint(**checkpoint, **tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto count_special = [&](const nlohmann::json& messages) {
    const std::string json = messages.dump();
    const absl::StatusOr<Segments> segments = (*chat)->Render({.messages_json = json, .now = kNow});
    EXPECT_TRUE(segments.ok()) << segments.status();
    const auto ids = (*tokenizer)->EncodeSegments(*segments);
    EXPECT_TRUE(ids.ok()) << ids.status();
    int special = 0;
    std::string text;
    for (const int32_t id : *ids) {
      special += (*tokenizer)->is_special(id) ? 1 : 0;
      text += (*tokenizer)->TokenBytes(id);
    }
    EXPECT_EQ(text, JoinSegments(*segments));
    return special;
  };
  const int honest = count_special({{{"role", "user"}, {"content", "hello"}}});
  for (int32_t id = 0; id < 17; ++id) {
    const std::string control((*tokenizer)->TokenBytes(id));
    ASSERT_TRUE((*tokenizer)->is_special(id));
    EXPECT_EQ(count_special({{{"role", "user"}, {"content", control}}}), honest) << control;
    EXPECT_EQ(count_special({{{"role", "user"}, {"content", "a" + control + "b"}}}), honest)
        << control;
    EXPECT_EQ(count_special({{{"role", control}, {"content", "x"}}}), honest) << control;
  }
}

TEST(ChatTemplateTest, ContentStaysMarkedThroughWhateverATemplateDoes) {
  const nlohmann::ordered_json variables = {{"c", "  Ab<x>  "},
                                            {"list", {"p", "q"}},
                                            {"d", {{"k", "v"}}},
                                            {"u", "straße"},
                                            {"lines", "a\nb"}};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"<s>{{ c }}</s>", "<s>[  Ab<x>  ]</s>"},
      {"{{ '<s>' + c | trim + '</s>' }}", "<s>[Ab<x>]</s>"},
      {"{{ c | upper }}{{ c.lower() }}", "[  AB<X>    ab<x>  ]"},
      {"{{ u | upper }}|{{ u | title }}", "[STRASSE]|[Straße]"},
      {"{{ c[2:4] }}|{{ c[::-1] }}|{{ c[3] }}", "[Ab]|[  >x<bA  ]|[b]"},
      {"{{ c.strip().replace('<x>', '<y>') }}", "[Ab]<y>"},
      {"{{ '<y>'.replace('y', c.strip()) }}", "<[Ab<x>]>"},
      {"{{ list | join('<sep>') }}", "[p]<sep>[q]"},
      {"{{ d | tojson }}", "{\"[k]\": \"[v]\"}"},
      {"{{ d }}{{ list }}", "{'[k]': '[v]'}['[p]', '[q]']"},
      {"{{ c.split('<')[1] }}{{ c.partition('<')[1] }}", "[x>  ]<"},
      {"{{ '%s-%5s' % (c | trim, 'a') }}", "[Ab<x>]-    a"},
      {"{{ '{}<{:>3}>'.format(list[0], list[1]) }}", "[p]<  [q]>"},
      {"{% set t %}<{{ c | trim }}>{% endset %}{{ t }}", "<[Ab<x>]>"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(list[0]) }}", "<[p]>"},
      {"{% filter upper %}a{{ list[0] }}{% endfilter %}", "A[P]"},
      {"{{ lines | indent(2) }}", "[a]\n  [b]"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "[k]=[v]"},
      {"{% for x in list[0] ~ 'z' %}{{ x }}{% endfor %}", "[p]z"},
      {"{{ c | trim | e }}", "[Ab&lt;x&gt;]"},
      {"{{ list | map('upper') | list | first }}{{ list | sort | last }}", "[Pq]"},
      {"{{ (list[0] * 3).center(5, '*') }}", "*[ppp]*"},
      {"{{ bos_token }}{{ list[0] }}{{ eos_token }}", "<BOS>[p]<EOS>"},
      {"{{ d | tojson | replace('v', '<v>') }}", "{\"[k]\": \"<v>\"}"},
      {"{{ c | trim | truncate(4, true, '<...>', 0) if false else list[0] | default('<d>') }}",
       "[p]"},
      {"{{ lines.splitlines() | join('<br>') }}", "[a]<br>[b]"},
      {"{{ list[0] | string ~ '<' }}", "[p]<"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(Marked(Render(source, variables)), expected) << source;
  }
}

TEST(ChatTemplateTest, CallersCannotReplaceTheBeginToken) {
  EXPECT_EQ(Marked(Render("{{ bos_token }}", {{"bos_token", "<evil>"}})), "<BOS>");
}

TEST(ChatTemplateTest, EverythingFromTheCallerIsContent) {
  const std::string messages =
      R"([{"role": "tool", "name": "n", "content": [{"type": "text", "text": "c"}],
           "tool_calls": [{"arguments": {"a": "b"}}]}])";
  const std::string source =
      "{% for m in messages %}<{{ m.role }}|{{ m.name }}|{{ m.content[0].text }}|"
      "{{ m.tool_calls[0].arguments | tojson }}>{% endfor %}{{ tools[0].x }}{{ extra }}";
  const auto segments = Make(source)->Render({.messages_json = messages,
                                              .tools_json = R"([{"x": "t"}])",
                                              .extra_json = R"({"extra": "e"})",
                                              .now = kNow});
  ASSERT_TRUE(segments.ok()) << segments.status();
  EXPECT_EQ(Marked(*segments), "<[tool]|[n]|[c]|{\"[a]\": \"[b]\"}>[te]");
}

TEST(ChatTemplateTest, RefusesInputThatIsNoConversation) {
  const auto chat = Make("{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto message = [&](const ChatInput& input) {
    return std::string(chat->Render(input).status().message());
  };
  EXPECT_THAT(message({.messages_json = "[", .now = kNow}), HasSubstr("messages: not valid JSON"));
  EXPECT_THAT(message({.messages_json = "{}", .now = kNow}),
              HasSubstr("messages: not a JSON array"));
  EXPECT_THAT(message({.messages_json = "[]", .tools_json = "3", .now = kNow}),
              HasSubstr("tools: not a JSON array"));
  EXPECT_THAT(message({.messages_json = "[]", .extra_json = "[]", .now = kNow}),
              HasSubstr("template variables: not a JSON object"));
}

TEST(ChatTemplateTest, ABadTemplateIsAnErrorWithItsLine) {
  const auto chat = ChatTemplate::Create("ok\n{% if %}", {});
  EXPECT_THAT(std::string(chat.status().message()), HasSubstr("chat template: line 2: "));
}

class ChatTemplateFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "chat_template_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const std::string tiny = std::string(CAIRN_TEST_DATA) + "/golden/models/llama/f32";
    for (const auto& file : std::filesystem::directory_iterator(tiny)) {
      std::filesystem::create_symlink(file.path(), folder_ / file.path().filename());
    }
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }

  absl::StatusOr<std::string> Source() {
    const auto checkpoint = Checkpoint::Open(folder_.string());
    if (!checkpoint.ok()) return checkpoint.status();
    return ChatTemplate::SourceFromCheckpoint(**checkpoint);
  }

  std::filesystem::path folder_;
};

TEST_F(ChatTemplateFolderTest, AFolderWithoutATemplateHasNone) {
  EXPECT_EQ(Source().status().code(), absl::StatusCode::kNotFound);
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(Source().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ChatTemplateFolderTest, ReadsTheConfigAndPrefersTheFile) {
  Write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(*Source(), "from config");
  const std::string named =
      R"([{"name": "rag", "template": "no"}, {"name": "default", "template": "named"}])";
  Write("tokenizer_config.json", R"({"chat_template": )" + named + "}");
  EXPECT_EQ(*Source(), "named");
  Write("chat_template.jinja", "from file");
  EXPECT_EQ(*Source(), "from file");
}

TEST_F(ChatTemplateFolderTest, RefusesATemplateOfAnotherKind) {
  Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(Source().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
