#include "absl/strings/str_cat.h"
#include "model/jinja_parser.h"
#include "model/utf8.h"

namespace cairn {

using TokenKind = JinjaToken::Kind;

bool JinjaTokenCursor::TakeOperator(std::string_view op) {
  if (!AtOperator(op)) return false;
  Skip();
  return true;
}

bool JinjaTokenCursor::TakeName(std::string_view name) {
  if (!AtName(name)) return false;
  Skip();
  return true;
}

absl::Status JinjaTokenCursor::Fail(std::string_view expected) const {
  std::string found;
  switch (current().kind) {
    case TokenKind::kData:
      found = "text";
      break;
    case TokenKind::kOutputBegin:
    case TokenKind::kBlockBegin:
      found = "begin of a tag";
      break;
    case TokenKind::kOutputEnd:
    case TokenKind::kBlockEnd:
      found = "end of the tag";
      break;
    case TokenKind::kEnd:
      found = "end of the template";
      break;
    default:
      found = absl::StrCat("'", Printable(current().text), "'");
  }
  return JinjaSyntaxError(line(),
                          absl::StrCat("expected ", std::string(expected), ", got ", found));
}

absl::Status JinjaTokenCursor::ExpectOperator(std::string_view op) {
  if (TakeOperator(op)) return absl::OkStatus();
  return Fail(absl::StrCat("'", std::string(op), "'"));
}

absl::Status JinjaTokenCursor::ExpectName(std::string_view name) {
  if (TakeName(name)) return absl::OkStatus();
  return Fail(absl::StrCat("'", std::string(name), "'"));
}

absl::Status JinjaTokenCursor::Expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) return Fail(what);
  Skip();
  return absl::OkStatus();
}

absl::StatusOr<std::string> JinjaTokenCursor::ExpectAnyName() {
  if (current().kind != TokenKind::kName) return Fail("a name");
  std::string name = current().text;
  Skip();
  return name;
}

}  // namespace cairn
