#include "model/jinja_template.h"

#include "model/jinja_run.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<JinjaTemplate>> JinjaTemplate::Parse(std::string_view source) {
  ASSIGN_OR_RETURN(JinjaBody body, ParseJinja(source));
  return std::unique_ptr<JinjaTemplate>(new JinjaTemplate(std::move(body)));
}

absl::StatusOr<JinjaText> JinjaTemplate::Render(
    std::vector<std::pair<std::string, JinjaValue>> variables, absl::CivilSecond now) const {
  JinjaRun run(now);
  for (auto& [name, value] : variables) run.Set(name, std::move(value));
  return run.Render(body_);
}

}  // namespace cairn
