#include "model/jinja_text.h"

#include <algorithm>
#include <utility>

namespace cairn {

JinjaText JinjaText::Scaffolding(std::string bytes) {
  JinjaText text;
  text.bytes_ = std::move(bytes);
  return text;
}

JinjaText JinjaText::Content(std::string bytes) {
  JinjaText text = Scaffolding(std::move(bytes));
  text.Mark(0, text.size());
  return text;
}

bool JinjaText::IsContentAt(size_t byte) const {
  const auto after = std::upper_bound(content_.begin(), content_.end(), byte,
                                      [](size_t at, const Range& range) { return at < range.end; });
  return after != content_.end() && after->begin <= byte;
}

void JinjaText::Append(std::string_view bytes, bool is_content) {
  const size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (is_content) Mark(begin, bytes_.size());
}

void JinjaText::AppendPart(const JinjaText& other, size_t begin, size_t end) {
  const size_t base = bytes_.size();
  // Copied first: `other` may be this text.
  const std::string bytes = other.bytes_.substr(begin, end - begin);
  auto range = std::upper_bound(other.content_.begin(), other.content_.end(), begin,
                                [](size_t at, const Range& r) { return at < r.end; });
  std::vector<Range> marks;
  for (; range != other.content_.end() && range->begin < end; ++range) {
    marks.push_back({std::max(range->begin, begin), std::min(range->end, end)});
  }
  bytes_.append(bytes);
  for (const Range& mark : marks) Mark(base + mark.begin - begin, base + mark.end - begin);
}

JinjaText JinjaText::Part(size_t begin, size_t end) const {
  JinjaText part;
  part.AppendPart(*this, begin, end);
  return part;
}

void JinjaText::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!content_.empty() && content_.back().end == begin) {
    content_.back().end = end;
  } else {
    content_.push_back({begin, end});
  }
}

}  // namespace cairn
