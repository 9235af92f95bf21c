#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr uint32_t kMaxMatchSteps = 10'000'000;
constexpr size_t kJitStackStartBytes = 32 * 1024;
constexpr size_t kJitStackMaxBytes = 1024 * 1024;

constexpr std::string_view kSpaces = R"(\p{Z}\t\n\x0B\f\r\x{85})";

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

PreTokenizer::Matcher::Matcher()
    : match_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      jit_stack_(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr)) {
  CHECK(match_ != nullptr && context_ != nullptr) << "out of memory";
  pcre2_set_match_limit(context_, kMaxMatchSteps);
  // Without this stack PCRE2 takes 32 KiB of the thread's own.
  if (jit_stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, jit_stack_);
}

PreTokenizer::Matcher::~Matcher() {
  pcre2_jit_stack_free(jit_stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(match_);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(
    const std::vector<SplitStage>& stages) {
  if (static_cast<int64_t>(stages.size()) > kMaxSplitStages) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pre-tokenizer: too many split stages: count=", stages.size(), " limit=", kMaxSplitStages));
  }
  std::unique_ptr<PreTokenizer> result(new PreTokenizer());
  for (const SplitStage& stage : stages) {
    if (static_cast<int64_t>(stage.pattern.size()) > kMaxPatternBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("pre-tokenizer: pattern is too long: bytes=", stage.pattern.size(),
                       " limit=", kMaxPatternBytes));
    }
    ASSIGN_OR_RETURN(const std::string pattern, WithUnicodeSpaces(stage.pattern));
    int error = 0;
    PCRE2_SIZE at = 0;
    // The reference's `$` and `^` stand at every line.
    constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     kOptions, &error, &at, nullptr);
    if (code == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("pre-tokenizer: not a regular expression: \"",
                                                     Printable(stage.pattern), "\" ",
                                                     ErrorText(error)));
    }
    result->stages_.push_back({code, stage.behavior});
    // Without the just-in-time compiler matching is slower, not different.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  return result;
}

PreTokenizer::~PreTokenizer() {
  for (const Stage& stage : stages_) pcre2_code_free(stage.code);
}

absl::Status PreTokenizer::Split(std::string_view text, const Matcher& matcher,
                                 absl::FunctionRef<void(std::string_view)> piece) const {
  if (text.empty()) return absl::OkStatus();
  return SplitFrom(0, text, matcher, piece);
}

absl::StatusOr<PreTokenizer::Match> PreTokenizer::NextMatch(size_t stage, std::string_view text,
                                                            size_t from,
                                                            const Matcher& matcher) const {
  while (from < text.size()) {
    const int found =
        pcre2_match(stages_[stage].code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    from, PCRE2_NO_UTF_CHECK, matcher.match_, matcher.context_);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("pre-tokenizer: matching failed: ", ErrorText(found), " stage=", stage,
                       " bytes=", text.size()));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(matcher.match_);
    if (ends[1] > ends[0]) return Match{ends[0], ends[1]};
    // An empty match is no piece; go on behind the next character.
    from = std::max<size_t>(ends[0], from) + 1;
    while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return Match{text.size(), text.size()};
}

absl::Status PreTokenizer::SplitFrom(size_t stage, std::string_view text, const Matcher& matcher,
                                     absl::FunctionRef<void(std::string_view)> piece) const {
  if (stage == stages_.size()) {
    piece(text);
    return absl::OkStatus();
  }
  const auto next_stage = [&](size_t begin, size_t end) {
    if (begin == end) return absl::OkStatus();
    return SplitFrom(stage + 1, text.substr(begin, end - begin), matcher, piece);
  };
  const SplitBehavior behavior = stages_[stage].behavior;
  size_t done = 0;  // All before is given out.
  size_t from = 0;
  while (from < text.size()) {
    ASSIGN_OR_RETURN(const Match match, NextMatch(stage, text, from, matcher));
    if (behavior == SplitBehavior::kMergedWithPrevious) {
      // Right behind another match `done` is where this one begins: it stays alone.
      RETURN_IF_ERROR(next_stage(done, match.end));
      done = match.end;
    } else {
      RETURN_IF_ERROR(next_stage(done, match.begin));
      done = match.begin;
    }
    if (behavior == SplitBehavior::kIsolated) {
      RETURN_IF_ERROR(next_stage(match.begin, match.end));
      done = match.end;
    }
    from = match.end;
  }
  return next_stage(done, text.size());
}

absl::StatusOr<std::string> WithUnicodeSpaces(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest.starts_with("\\s") || (rest.starts_with("\\S") && !in_class)) {
      const std::string_view open = in_class ? "" : rest[1] == 's' ? "[" : "[^";
      result.append(open).append(kSpaces).append(in_class ? "" : "]");
      ++i;
    } else if (rest[0] == '\\' && rest.size() > 1) {
      result.append(rest.substr(0, 2));
      ++i;
    } else if (!in_class && rest[0] == '[') {
      // A bracket right after the opening one (or after its ^) is a plain character.
      const size_t negation = rest.starts_with("[^") ? 1 : 0;
      const size_t literal = rest.substr(1 + negation).starts_with("]") ? 1 : 0;
      result.append(rest.substr(0, 1 + negation + literal));
      i += negation + literal;
      in_class = true;
    } else if (in_class && rest.starts_with("[:") && rest.find(":]") != rest.npos) {
      const size_t end = rest.find(":]") + 2;
      result.append(rest.substr(0, end));
      i += end - 1;
    } else if (in_class && (rest[0] == '[' || rest.starts_with("&&"))) {
      return absl::UnimplementedError(absl::StrCat(
          "pre-tokenizer: class within a class is not supported: \"", Printable(pattern), "\""));
    } else {
      if (rest[0] == ']') in_class = false;
      result.push_back(rest[0]);
    }
  }
  return result;
}

}  // namespace cairn
