// A parsed template, ready to be rendered many times.
//
// The language is Jinja as chat templates are written for it: the sandboxed environment with
// trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes, raise_exception and
// strftime_now. Values are Python's as far as templates can see; nothing can be changed in place.
// Thread: any; a template does not change.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/civil_time.h"
#include "base/status.h"
#include "model/jinja_syntax.h"
#include "model/jinja_text.h"
#include "model/jinja_value.h"

namespace cairn {

class JinjaTemplate {
 public:
  // Errors: InvalidArgument for a syntax error, Unimplemented for a tag, filter or test that is
  // not known; both with the line.
  static absl::StatusOr<std::unique_ptr<JinjaTemplate>> Parse(std::string_view source);

  // Errors: InvalidArgument with the template's own text if it raises, or with the line and what
  // went wrong; ResourceExhausted names the limit of work, depth or size that was reached.
  absl::StatusOr<JinjaText> Render(std::vector<std::pair<std::string, JinjaValue>> variables,
                                   absl::CivilSecond now) const;

 private:
  explicit JinjaTemplate(JinjaBody body) : body_(std::move(body)) {}

  const JinjaBody body_;
};

}  // namespace cairn
