#include "model/chat_template.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "model/checkpoint.h"
#include "model/jinja_json.h"
#include "model/jinja_lexer.h"
#include "model/jinja_template.h"
#include "model/json_text.h"

namespace cairn {
namespace {

using Variables = std::vector<std::pair<std::string, JinjaValue>>;

// chat_template of tokenizer_config.json: a text, or a list of named ones of which "default"
// counts.
absl::StatusOr<std::string> SourceFromConfig(const nlohmann::json& config) {
  const auto found = config.find("chat_template");
  if (!config.is_object() || found == config.end() || found->is_null()) {
    return absl::NotFoundError("no chat template: tokenizer_config.json has none");
  }
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const nlohmann::json& entry : *found) {
      if (!entry.is_object() || entry.value("name", nlohmann::json()) != "default") continue;
      const nlohmann::json source = entry.value("template", nlohmann::json());
      if (source.is_string()) return source.get<std::string>();
    }
  }
  return absl::InvalidArgumentError(
      "tokenizer_config.json: chat_template is neither a string nor a list with a default");
}

absl::StatusOr<std::string> SourceFromFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::path(folder) / "chat_template.jinja";
  if (std::filesystem::exists(file, error)) {
    ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(file.string()));
    if (mapped.size_bytes() > kMaxTemplateBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.string(), ": template is too long: bytes=", mapped.size_bytes(),
                       " limit=", kMaxTemplateBytes));
    }
    const auto bytes = mapped.bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  const std::filesystem::path config = std::filesystem::path(folder) / "tokenizer_config.json";
  if (!std::filesystem::exists(config, error)) {
    return absl::NotFoundError(
        absl::StrCat("no chat template: ", folder,
                     " has neither chat_template.jinja nor tokenizer_config.json"));
  }
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonFile(config.string(), JsonLimits{}));
  return SourceFromConfig(json);
}

std::vector<TextSegment> MakeSegments(const JinjaText& text) {
  std::vector<TextSegment> segments;
  size_t at = 0;
  const auto add = [&](size_t end, bool is_content) {
    if (at < end) segments.push_back({text.bytes().substr(at, end - at), is_content});
    at = end;
  };
  for (const JinjaText::Range& range : text.content()) {
    add(range.begin, false);
    add(range.end, true);
  }
  add(text.size(), false);
  return segments;
}

bool Has(const Variables& variables, std::string_view name) {
  for (const auto& variable : variables) {
    if (variable.first == name) return true;
  }
  return false;
}

// Adds the members of an object. Errors: InvalidArgument, with `what` first.
absl::Status AddMembers(std::string_view json, std::string_view what, Variables& variables) {
  const std::string name(what);
  const absl::StatusOr<JinjaValue> object = ParseJinjaJson(json);
  if (!object.ok()) return Annotate(object.status(), name);
  if (!object->is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not a JSON object"));
  }
  for (const auto& [key, value] : object->dict().items) {
    variables.emplace_back(key.text().bytes(), value);
  }
  return absl::OkStatus();
}

absl::Status AddArray(std::string_view json, const std::string& name, Variables& variables) {
  absl::StatusOr<JinjaValue> array = ParseJinjaJson(json);
  if (!array.ok()) return Annotate(array.status(), name);
  if (!array->is_list())
    return absl::InvalidArgumentError(absl::StrCat(name, ": not a JSON array"));
  variables.emplace_back(name, *std::move(array));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TextSegment>> RenderWith(const JinjaTemplate& jinja,
                                                    const ChatTemplate::Options& options,
                                                    Variables variables, absl::CivilSecond now) {
  // As the reference does: these are always there, and none if not given.
  for (const char* name : {"tools", "documents"}) {
    if (!Has(variables, name)) variables.emplace_back(name, JinjaValue());
  }
  // Last, so that a caller's variables cannot take their place.
  variables.emplace_back("bos_token", JinjaValue::Scaffolding(options.bos_token));
  variables.emplace_back("eos_token", JinjaValue::Scaffolding(options.eos_token));
  ASSIGN_OR_RETURN(const JinjaText text, jinja.Render(std::move(variables), now));
  return MakeSegments(text);
}

}  // namespace

std::string JoinSegments(std::span<const TextSegment> segments) {
  std::string text;
  for (const TextSegment& segment : segments) text.append(segment.text);
  return text;
}

ChatTemplate::ChatTemplate(std::unique_ptr<JinjaTemplate> jinja, Options options)
    : jinja_(std::move(jinja)), options_(std::move(options)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                                   Options options) {
  absl::StatusOr<std::unique_ptr<JinjaTemplate>> jinja = JinjaTemplate::Parse(source);
  if (!jinja.ok()) return Annotate(jinja.status(), "chat template");
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(*std::move(jinja), std::move(options)));
}

absl::StatusOr<std::string> ChatTemplate::SourceFromCheckpoint(const Checkpoint& checkpoint) {
  if (checkpoint.format() != CheckpointFormat::kGguf) {
    if (checkpoint.is_directory()) return SourceFromFolder(checkpoint.path());
    return absl::NotFoundError("no chat template: one safetensors file has none; give its folder");
  }
  const MetadataValue* value = checkpoint.metadata().Find("tokenizer.chat_template");
  if (value == nullptr) {
    return absl::NotFoundError("no chat template: tokenizer.chat_template is missing");
  }
  const std::optional<std::string_view> source = value->AsString();
  if (!source.has_value()) {
    return absl::InvalidArgumentError("tokenizer.chat_template is not a string");
  }
  return std::string(*source);
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::FromCheckpoint(
    const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const std::string source, SourceFromCheckpoint(checkpoint));
  const auto text = [&](std::optional<int32_t> id) {
    return id.has_value() ? std::string(tokenizer.TokenBytes(*id)) : std::string();
  };
  return Create(source,
                {.bos_token = text(tokenizer.bos_id()), .eos_token = text(tokenizer.eos_id())});
}

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::Render(const ChatInput& input) const {
  Variables variables;
  if (!input.extra_json.empty()) {
    RETURN_IF_ERROR(AddMembers(input.extra_json, "template variables", variables));
  }
  RETURN_IF_ERROR(AddArray(input.messages_json, "messages", variables));
  if (!input.tools_json.empty()) RETURN_IF_ERROR(AddArray(input.tools_json, "tools", variables));
  variables.emplace_back("add_generation_prompt", JinjaValue::Bool(input.add_generation_prompt));
  return RenderWith(*jinja_, options_, std::move(variables), input.now);
}

absl::StatusOr<std::vector<TextSegment>> ChatTemplate::RenderVariables(
    std::string_view variables_json, absl::CivilSecond now) const {
  Variables variables;
  RETURN_IF_ERROR(AddMembers(variables_json, "template variables", variables));
  return RenderWith(*jinja_, options_, std::move(variables), now);
}

}  // namespace cairn
