// Turns a conversation into the text of a prompt with the template that the model came with.
//
// Templates are Jinja, run by our own engine (model/jinja_template.h) under named limits on steps,
// depth and output. The result says which bytes came from the caller, so that tokenizing it
// (Tokenizer::EncodeSegments) never makes a control token of message content.
//
// Thread: any; a ChatTemplate does not change after it was made.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/civil_time.h"
#include "base/status.h"
#include "model/tokenizer.h"

namespace cairn {

class Checkpoint;
class JinjaTemplate;

// What a template sees of one chat request. JSON texts; an empty view is "not given".
struct ChatInput {
  std::string_view messages_json = {};  // Array of {"role", "content", ...}.
  std::string_view tools_json = {};     // Array of tools.
  std::string_view extra_json = {};     // Object of further template variables.
  bool add_generation_prompt = true;
  absl::CivilSecond now = {};  // For templates that write the date; local time.
};

// All of the text of the segments.
std::string JoinSegments(std::span<const TextSegment> segments);

class ChatTemplate {
 public:
  struct Options {
    std::string bos_token;
    std::string eos_token;
  };

  // Errors: InvalidArgument for a syntax error, Unimplemented for a construct that the engine does
  // not have; both name it with its line. Whoever loads a model goes on without chat then.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                              Options options);
  // The template of a GGUF file (tokenizer.chat_template) or of a folder (chat_template.jinja,
  // else tokenizer_config.json); the begin and end tokens' text is the tokenizer's.
  // Errors: also NotFound if the model has no template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> FromCheckpoint(const Checkpoint& checkpoint,
                                                                      const Tokenizer& tokenizer);
  // The source text alone, for callers that choose the tokens themselves.
  static absl::StatusOr<std::string> SourceFromCheckpoint(const Checkpoint& checkpoint);

  ~ChatTemplate();

  // Errors: InvalidArgument with the template's own text if it refuses the conversation, or with
  // what went wrong and the line; ResourceExhausted if a limit of the engine was reached.
  absl::StatusOr<std::vector<TextSegment>> Render(const ChatInput& input) const;

  // The same with all variables in one JSON object ("messages", "tools", ...).
  absl::StatusOr<std::vector<TextSegment>> RenderVariables(std::string_view variables_json,
                                                           absl::CivilSecond now) const;

 private:
  ChatTemplate(std::unique_ptr<JinjaTemplate> jinja, Options options);

  const std::unique_ptr<JinjaTemplate> jinja_;
  const Options options_;
};

}  // namespace cairn
