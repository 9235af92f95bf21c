// The tests of templates: "x is defined".
#include <cmath>

#include "absl/strings/str_format.h"
#include "model/jinja_functions.h"
#include "model/jinja_run.h"
#include "model/unicode.h"

namespace cairn {
namespace {

using Value = absl::StatusOr<JinjaValue>;

JinjaValue Bool(bool value) { return JinjaValue::Bool(value); }

Value Defined(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(!self.is_undefined());
}
Value Undefined(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(self.is_undefined());
}
Value None(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return Bool(self.is_none()); }
Value Boolean(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return Bool(self.is_bool()); }
Value True(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(self.is_bool() && self.truthy());
}
Value False(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(self.is_bool() && !self.truthy());
}
Value Integer(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return Bool(self.is_int()); }
Value Float(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return Bool(self.is_float()); }
Value Number(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(self.is_number());
}
Value String(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return Bool(self.is_text()); }
Value Mapping(JinjaRun&, const JinjaValue& self, const JinjaBound&) { return Bool(self.is_dict()); }

Value Iterable(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(self.is_undefined() || self.is_text() || self.is_list() || self.is_dict());
}

Value Sequence(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  const bool view = self.is_list() && self.type_name().starts_with("dict_");
  return Bool(self.is_text() || self.is_dict() || (self.is_list() && !view));
}

Value Callable(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  const bool object = self.is_object() && self.type_name() != "Namespace";
  return Bool(object || self.is_function() || self.is_method());
}

Value Lower(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(HasOnlyCase(JinjaStr(self).view(), IsLower));
}
Value Upper(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(HasOnlyCase(JinjaStr(self).view(), IsUpper));
}

absl::StatusOr<JinjaValue> Remainder(const JinjaValue& self, const JinjaValue& divisor) {
  if (self.is_text()) return absl::InvalidArgumentError("a str has no remainder");
  return JinjaArithmetic(JinjaOperator::kModulo, self, divisor);
}

Value DivisibleBy(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const JinjaValue remainder, Remainder(self, arguments[0]));
  return Bool(!remainder.truthy());
}
Value Even(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  ASSIGN_OR_RETURN(const JinjaValue remainder, Remainder(self, JinjaValue::Int(2)));
  return Bool(!remainder.truthy());
}
Value Odd(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  ASSIGN_OR_RETURN(const JinjaValue remainder, Remainder(self, JinjaValue::Int(2)));
  return Bool(JinjaEquals(remainder, JinjaValue::Int(1)));
}

Value Equal(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  RETURN_IF_ERROR(run.Charge(self.weight()));
  return Bool(JinjaEquals(self, arguments[0]));
}
Value NotEqual(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  RETURN_IF_ERROR(run.Charge(self.weight()));
  return Bool(!JinjaEquals(self, arguments[0]));
}
Value Less(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const bool less, JinjaLess(self, arguments[0]));
  return Bool(less);
}
Value Greater(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const bool less, JinjaLess(arguments[0], self));
  return Bool(less);
}
Value LessOrEqual(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const bool less, JinjaLess(self, arguments[0]));
  return Bool(less || JinjaEquals(self, arguments[0]));
}
Value GreaterOrEqual(JinjaRun&, const JinjaValue& self, const JinjaBound& arguments) {
  ASSIGN_OR_RETURN(const bool less, JinjaLess(arguments[0], self));
  return Bool(less || JinjaEquals(self, arguments[0]));
}

Value In(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  RETURN_IF_ERROR(run.Charge(arguments[0].weight()));
  ASSIGN_OR_RETURN(const bool contains, run.Contains(arguments[0], self));
  return Bool(contains);
}

// Whether both are one object; values that cannot be told apart are.
Value SameAs(JinjaRun& run, const JinjaValue& self, const JinjaBound& arguments) {
  RETURN_IF_ERROR(run.Charge(self.weight()));
  return Bool(self.type_name() == arguments[0].type_name() && JinjaEquals(self, arguments[0]));
}

Value IsFilter(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(FindJinjaFilter(JinjaStr(self).view()) != nullptr);
}
Value IsTest(JinjaRun&, const JinjaValue& self, const JinjaBound&) {
  return Bool(FindJinjaTest(JinjaStr(self).view()) != nullptr);
}
Value Escaped(JinjaRun&, const JinjaValue&, const JinjaBound&) { return Bool(false); }

constexpr JinjaFunction kTests[] = {
    {"!=", "other", 1, NotEqual},
    {"<", "other", 1, Less},
    {"<=", "other", 1, LessOrEqual},
    {"==", "other", 1, Equal},
    {">", "other", 1, Greater},
    {">=", "other", 1, GreaterOrEqual},
    {"boolean", "", 0, Boolean},
    {"callable", "", 0, Callable},
    {"defined", "", 0, Defined},
    {"divisibleby", "num", 1, DivisibleBy},
    {"eq", "other", 1, Equal},
    {"equalto", "other", 1, Equal},
    {"escaped", "", 0, Escaped},
    {"even", "", 0, Even},
    {"false", "", 0, False},
    {"filter", "", 0, IsFilter},
    {"float", "", 0, Float},
    {"ge", "other", 1, GreaterOrEqual},
    {"greaterthan", "other", 1, Greater},
    {"gt", "other", 1, Greater},
    {"in", "seq", 1, In},
    {"integer", "", 0, Integer},
    {"iterable", "", 0, Iterable},
    {"le", "other", 1, LessOrEqual},
    {"lessthan", "other", 1, Less},
    {"lower", "", 0, Lower},
    {"lt", "other", 1, Less},
    {"mapping", "", 0, Mapping},
    {"ne", "other", 1, NotEqual},
    {"none", "", 0, None},
    {"number", "", 0, Number},
    {"odd", "", 0, Odd},
    {"sameas", "other", 1, SameAs},
    {"sequence", "", 0, Sequence},
    {"string", "", 0, String},
    {"test", "", 0, IsTest},
    {"true", "", 0, True},
    {"undefined", "", 0, Undefined},
    {"upper", "", 0, Upper},
};

}  // namespace

const JinjaFunction* FindJinjaTest(std::string_view name) { return FindFunction(kTests, name); }

}  // namespace cairn
