// Verbs about model files and text; nothing is computed.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "cli/answer_json.h"
#include "cli/verbs.h"
#include "model/chat_template.h"
#include "model/checkpoint.h"
#include "model/detokenizer.h"
#include "model/inspect.h"
#include "model/json_text.h"
#include "model/tokenizer.h"

namespace cairn {
namespace {

using nlohmann::json;

constexpr JsonLimits kLineLimits{.max_bytes = int64_t{64} << 20, .max_depth = 64};

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("--model is missing: see --help");
  return Tokenizer::FromFile(path);
}

// Runs `convert` on each line of stdin that is not empty and prints the JSON it makes.
absl::Status ConvertLines(const std::function<absl::StatusOr<json>(const json&)>& convert) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    const std::string where = absl::StrCat("stdin line ", number);
    absl::StatusOr<json> input = ParseJson(line, kLineLimits);
    if (!input.ok())
      return Annotate(input.status(), where + " (one JSON value; a text stands in quotes)");
    absl::StatusOr<json> output = convert(*input);
    if (!output.ok()) return Annotate(output.status(), where);
    std::cout << output->dump(-1, ' ', true, json::error_handler_t::replace) << "\n";
  }
  std::cout.flush();
  return absl::OkStatus();
}

absl::Status Tokenize(const std::string& model, const EncodeOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, OpenTokenizer(model));
  return ConvertLines([&](const json& input) -> absl::StatusOr<json> {
    if (!input.is_string()) return absl::InvalidArgumentError("not a JSON string");
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                     tokenizer->Encode(input.get_ref<const std::string&>(), options));
    return json(ids);
  });
}

absl::Status Detokenize(const std::string& model, const DetokenizerOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, OpenTokenizer(model));
  return ConvertLines([&](const json& input) -> absl::StatusOr<json> {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(input, tokenizer->vocab_size() - 1));
    return json(DecodeTokens(*tokenizer, ids, options));
  });
}

struct RenderFlags {
  std::string model, template_file;
  std::optional<std::string> bos, eos, now;
};

absl::StatusOr<std::string> ReadAll(std::istream& in) {
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (static_cast<int64_t>(text.size()) > kLineLimits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("input too long: ", text.size(), " bytes, limit ", kLineLimits.max_bytes));
  }
  return text;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> OpenTemplate(const RenderFlags& flags) {
  if (flags.model.empty() == flags.template_file.empty()) {
    return absl::InvalidArgumentError("give one of --model and --template");
  }
  ChatTemplate::Options options{.bos_token = flags.bos.value_or(""),
                                .eos_token = flags.eos.value_or("")};
  if (!flags.template_file.empty()) {
    std::ifstream file(flags.template_file, std::ios::binary);
    if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", flags.template_file));
    ASSIGN_OR_RETURN(const std::string source, ReadAll(file));
    return ChatTemplate::Create(source, options);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(flags.model));
  if (flags.bos.has_value() && flags.eos.has_value()) {
    ASSIGN_OR_RETURN(const std::string source, ChatTemplate::SourceFromCheckpoint(*checkpoint));
    return ChatTemplate::Create(source, options);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   Tokenizer::FromCheckpoint(*checkpoint));
  return ChatTemplate::FromCheckpoint(*checkpoint, *tokenizer);
}

absl::Status Render(const RenderFlags& flags) {
  absl::CivilSecond now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
  if (flags.now.has_value() && !absl::ParseCivilTime(*flags.now, &now)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--now: '", *flags.now, "' is not a time such as 2025-03-09T14:05:07"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ChatTemplate> chat, OpenTemplate(flags));
  ASSIGN_OR_RETURN(const std::string variables, ReadAll(std::cin));
  ASSIGN_OR_RETURN(const std::vector<TextSegment> segments, chat->RenderVariables(variables, now));
  const std::string text = JoinSegments(segments);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

int Report(const absl::Status& status) { return status.ok() ? 0 : ReportRefusal(status); }

}  // namespace

int RunInspect(const Arguments& arguments) {
  bool as_json = false;
  FlagTable flags;
  flags.Add("json", &as_json, "one JSON object");
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn inspect FILE|FOLDER [--json]\n"
      "Lists metadata, tensors and sizes of a GGUF file, a safetensors file or a model folder;\n"
      "of a config.json without its weights what the model would be.\n"
      "Exits with 1 for files that cannot be read; what can be read but not run is listed, with\n"
      "the reason as its problem.",
      &flags, arguments, 1);
  if (parsed.done) return parsed.exit_status;
  if (parsed.rest.empty()) return ReportUsage("inspect needs a path: see cairn inspect --help");
  const absl::StatusOr<std::string> text =
      InspectModel(parsed.rest[0], as_json ? InspectFormat::kJson : InspectFormat::kText);
  if (!text.ok()) return ReportRefusal(text.status());
  std::fwrite(text->data(), 1, text->size(), stdout);
  return 0;
}

int RunTokenize(const Arguments& arguments) {
  std::string model;
  bool no_bos = false, parse_special = false;
  FlagTable flags;
  flags.Add("model", &model, "PATH",
            "GGUF file, tokenizer.json, tokenizer.model, tekken.json or folder");
  flags.Add("no-bos", &no_bos, "without the begin and end tokens that the model wants");
  flags.Add("parse-special", &parse_special,
            "control tokens spelled out in a text become their ids");
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn tokenize --model PATH [flags] < LINES\n"
      "Reads one JSON string a line, prints one JSON array of ids a line.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  return Report(Tokenize(model, {.parse_special = parse_special, .add_special = !no_bos}));
}

int RunDetokenize(const Arguments& arguments) {
  std::string model;
  bool skip_special = false;
  FlagTable flags;
  flags.Add("model", &model, "PATH",
            "GGUF file, tokenizer.json, tokenizer.model, tekken.json or folder");
  flags.Add("skip-special", &skip_special, "leave out the text of control tokens");
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn detokenize --model PATH [flags] < LINES\n"
      "Reads one JSON array of ids a line, prints one JSON string a line.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  return Report(Detokenize(model, {.skip_special_tokens = skip_special, .begins_text = true}));
}

int RunRender(const Arguments& arguments) {
  RenderFlags render;
  FlagTable flags;
  flags.Add("model", &render.model, "PATH", "use the template of this model");
  flags.Add("template", &render.template_file, "FILE", "use the template in this file");
  flags.Add("bos", &render.bos, "TEXT", "bos_token; by default the model's");
  flags.Add("eos", &render.eos, "TEXT", "eos_token; by default the model's");
  flags.Add("now", &render.now, "TIME", "for templates that write the date: 2025-03-09T14:05:07");
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn render --model PATH | --template FILE [flags] < VARIABLES\n"
      "Reads one JSON object of template variables (\"messages\", \"tools\",\n"
      "\"add_generation_prompt\" ...), prints the text, byte for byte.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  return Report(Render(render));
}

}  // namespace cairn
