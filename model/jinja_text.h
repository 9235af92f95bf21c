// A string of a template that knows which of its bytes came from the caller.
//
// Whatever a template does to message content (joining, slicing, trimming, escaping ...), the bytes
// stay marked, so that the tokenizer can refuse to see control tokens in them.
// Thread: as std::string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

class JinjaText {
 public:
  struct Range {
    size_t begin;
    size_t end;
    bool operator==(const Range&) const = default;
  };

  JinjaText() = default;
  static JinjaText Scaffolding(std::string bytes);
  static JinjaText Content(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Ascending, apart from one another, none empty.
  const std::vector<Range>& content() const { return content_; }
  bool IsContentAt(size_t byte) const;

  void Append(std::string_view bytes, bool is_content);
  void Append(const JinjaText& other) { AppendPart(other, 0, other.size()); }
  // Bytes [begin, end) of `other`.
  void AppendPart(const JinjaText& other, size_t begin, size_t end);
  JinjaText Part(size_t begin, size_t end) const;

 private:
  void Mark(size_t begin, size_t end);

  std::string bytes_;
  std::vector<Range> content_;
};

}  // namespace cairn
