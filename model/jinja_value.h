// Values of a template: Python's, as far as templates see them.
//
// Values do not change once made (templates run in Jinja's immutable sandbox), so copies share what
// they hold. Namespaces, macros and loops are objects that belong to the run that made them.
// Thread: any, while the run lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "model/jinja_text.h"

namespace cairn {

// Python's integers have no size; these do, and overflow is an error.
using JinjaInt = __int128;

inline constexpr int kMaxJinjaValueDepth = 100;       // lists and dicts in one another
inline constexpr int64_t kMaxJinjaItems = 1'000'000;  // of one list or dict
inline constexpr int64_t kMaxJinjaTextBytes = int64_t{64} << 20;
// Of one value with all it holds, a shared part counted each time it is reached: what writing the
// value out costs. A value is 1, a text also 1 for each 32 bytes.
inline constexpr int64_t kMaxJinjaWeight = 4'000'000;

class JinjaValue;
class JinjaObject;
struct JinjaDict;
struct JinjaFunction;
struct JinjaList;
struct JinjaMethod;

class JinjaValue {
 public:
  struct Undefined {
    std::string message;  // what using it says
  };
  struct None {};

  JinjaValue() : data_(None()) {}
  static JinjaValue MakeUndefined(std::string message);
  static JinjaValue Bool(bool value) { return JinjaValue(Data(value)); }
  static JinjaValue Int(JinjaInt value) { return JinjaValue(Data(value)); }
  static JinjaValue Float(double value) { return JinjaValue(Data(value)); }
  static JinjaValue Text(JinjaText text);
  static JinjaValue Scaffolding(std::string text) {
    return Text(JinjaText::Scaffolding(std::move(text)));
  }
  // Errors: ResourceExhausted past kMaxJinjaItems, kMaxJinjaValueDepth or kMaxJinjaWeight.
  static absl::StatusOr<JinjaValue> List(std::vector<JinjaValue> items);
  static absl::StatusOr<JinjaValue> Tuple(std::vector<JinjaValue> items);
  static absl::StatusOr<JinjaValue> Make(JinjaList list);
  // Keys that are equal are one entry: the first's place, the last's value.
  static absl::StatusOr<JinjaValue> Dict(std::vector<std::pair<JinjaValue, JinjaValue>> items);
  static JinjaValue Object(JinjaObject* object) { return JinjaValue(Data(object)); }
  static JinjaValue Function(const JinjaFunction* function) { return JinjaValue(Data(function)); }
  static JinjaValue Method(const JinjaValue& self, const JinjaFunction* function);

  bool is_undefined() const { return holds<Shared<Undefined>>(); }
  bool is_none() const { return holds<None>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_int() const { return holds<JinjaInt>(); }  // not a bool
  bool is_float() const { return holds<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_text() const { return holds<Shared<JinjaText>>(); }
  bool is_list() const { return holds<Shared<JinjaList>>(); }  // any kind of sequence
  bool is_dict() const { return holds<Shared<JinjaDict>>(); }
  bool is_object() const { return holds<JinjaObject*>(); }
  bool is_function() const { return holds<const JinjaFunction*>(); }
  bool is_method() const { return holds<Shared<JinjaMethod>>(); }

  const std::string& undefined_message() const { return get<Shared<Undefined>>()->message; }
  JinjaInt as_int() const;  // of an int or a bool
  double as_float() const;  // of any number
  const JinjaText& text() const { return *get<Shared<JinjaText>>(); }
  const JinjaList& list() const { return *get<Shared<JinjaList>>(); }
  const JinjaDict& dict() const { return *get<Shared<JinjaDict>>(); }
  JinjaObject* object() const { return get<JinjaObject*>(); }
  const JinjaFunction* function() const { return get<const JinjaFunction*>(); }
  const JinjaMethod& method() const { return *get<Shared<JinjaMethod>>(); }

  bool truthy() const;
  // How deep lists and dicts go; 0 for anything else.
  int depth() const;
  int64_t weight() const;
  // "str", "int", "list" ... as Python's messages name it.
  std::string_view type_name() const;

 private:
  // Shared because a value is handed to many variables and never changes.
  template <typename T>
  using Shared = std::shared_ptr<const T>;
  using Data = std::variant<None, bool, JinjaInt, double, Shared<Undefined>, Shared<JinjaText>,
                            Shared<JinjaList>, Shared<JinjaDict>, JinjaObject*,
                            const JinjaFunction*, Shared<JinjaMethod>>;

  explicit JinjaValue(Data data) : data_(std::move(data)) {}
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }
  template <typename T>
  const T& get() const {
    return *std::get_if<T>(&data_);
  }

  Data data_;
};

struct JinjaList {
  enum class Kind { kList, kTuple, kGroup, kRange, kKeys, kValues, kItems };
  Kind kind = Kind::kList;
  std::vector<JinjaValue> items;
  JinjaInt start = 0, stop = 0, step = 1;  // of a range
  int depth = 1;
  int64_t weight = 1;

  bool is_tuple() const { return kind == Kind::kTuple || kind == Kind::kGroup; }
};

struct JinjaDict {
  std::vector<std::pair<JinjaValue, JinjaValue>> items;
  absl::flat_hash_map<std::string, size_t> index;  // of keys that are text
  int depth = 1;
  int64_t weight = 1;

  // nullptr if there is none.
  const JinjaValue* Find(const JinjaValue& key) const;
  const JinjaValue* Find(std::string_view key) const;
};

struct JinjaMethod {
  JinjaValue self;
  const JinjaFunction* function;
};

// A namespace, macro, loop, joiner or cycler.
class JinjaObject {
 public:
  virtual ~JinjaObject() = default;
  virtual std::string_view type_name() const = 0;
};

bool JinjaEquals(const JinjaValue& a, const JinjaValue& b);
// Whether a < b. Errors: InvalidArgument if they have no order.
absl::StatusOr<bool> JinjaLess(const JinjaValue& a, const JinjaValue& b);

// What printing the value writes: str() and, inside lists, repr() of Python.
JinjaText JinjaStr(const JinjaValue& value);
JinjaText JinjaRepr(const JinjaValue& value);

std::string JinjaIntText(JinjaInt value);
// The shortest digits that read back the same, laid out as Python does.
std::string JinjaFloatText(double value);

}  // namespace cairn
