// The objects of a run: what changes while a template is rendered.
// Only jinja_run*.cc include this.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/jinja_run.h"

namespace cairn {

// One more expression or body inside another, until it goes out of scope.
class JinjaRun::Level {
 public:
  explicit Level(JinjaRun* run) : run_(*run) { ++run_.depth_; }
  ~Level() { --run_.depth_; }
  absl::Status Check() const {
    if (run_.depth_ <= kMaxJinjaRunDepth) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("template calls itself too deeply: limit=", kMaxJinjaRunDepth));
  }

 private:
  JinjaRun& run_;
};

struct JinjaRun::Scope {
  Scope* parent = nullptr;
  bool captured = false;  // A macro was defined inside and may still read it.
  std::vector<std::pair<std::string, JinjaValue>> variables;

  const JinjaValue* Find(std::string_view name) const {
    for (const auto& [other, value] : variables) {
      if (other == name) return &value;
    }
    return nullptr;
  }
  void Set(std::string_view name, JinjaValue value) {
    for (auto& [other, old] : variables) {
      if (other != name) continue;
      old = std::move(value);
      return;
    }
    variables.emplace_back(std::string(name), std::move(value));
  }
};

struct JinjaRun::Namespace : JinjaObject {
  std::string_view type_name() const override { return "Namespace"; }
  std::vector<std::pair<std::string, JinjaValue>> members;
};

struct JinjaRun::Loop : JinjaObject {
  std::string_view type_name() const override { return "LoopContext"; }
  const JinjaStatement* statement = nullptr;
  std::vector<JinjaValue> items;  // empty once the loop is done
  size_t length = 0;
  size_t index = 0;
  int depth = 0;
  Scope* outer = nullptr;  // where the loop stands
  std::vector<JinjaValue> last_changed;
  bool has_changed = false;
};

struct JinjaRun::Macro : JinjaObject {
  std::string_view type_name() const override { return "Macro"; }
  const JinjaStatement* definition = nullptr;
  Scope* outer = nullptr;
};

struct JinjaRun::Joiner : JinjaObject {
  std::string_view type_name() const override { return "Joiner"; }
  JinjaText separator;
  bool used = false;
};

struct JinjaRun::Cycler : JinjaObject {
  std::string_view type_name() const override { return "Cycler"; }
  std::vector<JinjaValue> items;
  size_t index = 0;
};

}  // namespace cairn
