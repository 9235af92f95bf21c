// Cuts text into the pieces inside which byte pairs may merge, by the model's regular expressions.
// Letters and numbers are those of Unicode 14 (PCRE2 10.42).
//
// Thread: any; constant after Create. A Matcher is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"

struct pcre2_real_code_8;
struct pcre2_real_jit_stack_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace cairn {

inline constexpr int64_t kMaxSplitStages = 16;
inline constexpr int64_t kMaxPatternBytes = 16384;

// What becomes of a match of a pattern and of what lies between two matches.
enum class SplitBehavior : uint8_t {
  kIsolated,            // each is a piece
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece after it
};

struct SplitStage {
  std::string pattern;  // a regular expression
  SplitBehavior behavior = SplitBehavior::kIsolated;
};

class PreTokenizer {
 public:
  // Each stage cuts the pieces of the one before it.
  // Errors: InvalidArgument with the pattern if one is not a regular expression or too long;
  // Unimplemented if it has a class within a class or `&&`, which PCRE2 reads otherwise than the
  // reference.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(
      const std::vector<SplitStage>& stages);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // The memory that matching needs, made once for many calls of Split.
  class Matcher {
   public:
    Matcher();
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

   private:
    friend class PreTokenizer;
    pcre2_real_match_data_8* const match_;
    pcre2_real_match_context_8* const context_;
    pcre2_real_jit_stack_8* const jit_stack_;
  };

  // Calls `piece` for each piece of `text`, which must be UTF-8, in order; together they are
  // `text`. Errors: ResourceExhausted if a pattern exceeds its limit of matching steps on this
  // text.
  absl::Status Split(std::string_view text, const Matcher& matcher,
                     absl::FunctionRef<void(std::string_view)> piece) const;

 private:
  struct Stage {
    pcre2_real_code_8* code;  // owned
    SplitBehavior behavior;
  };
  // A stretch of a stage's text.
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  PreTokenizer() = default;
  absl::Status SplitFrom(size_t stage, std::string_view text, const Matcher& matcher,
                         absl::FunctionRef<void(std::string_view)> piece) const;
  // The first match at or after `from` that is not empty; one at the end of the text if there is
  // none.
  absl::StatusOr<Match> NextMatch(size_t stage, std::string_view text, size_t from,
                                  const Matcher& matcher) const;

  std::vector<Stage> stages_;
};

// `pattern` with \s and \S spelled out as Unicode's White_Space, which PCRE2 takes more widely.
// Errors: as Create for a class within a class.
absl::StatusOr<std::string> WithUnicodeSpaces(std::string_view pattern);

}  // namespace cairn
