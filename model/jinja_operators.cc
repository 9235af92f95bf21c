#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/jinja_run.h"

namespace cairn {
namespace {

absl::Status NoOperation(std::string_view symbol, const JinjaValue& a, const JinjaValue& b) {
  for (const JinjaValue* value : {&a, &b}) {
    if (value->is_undefined()) return absl::InvalidArgumentError(value->undefined_message());
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("unsupported operand type(s) for %s: '%s' and '%s'", std::string(symbol),
                      std::string(a.type_name()), std::string(b.type_name())));
}

absl::Status IntegerTooLarge() { return absl::ResourceExhaustedError("integer is too large"); }

absl::StatusOr<JinjaValue> Join(const JinjaText& a, const JinjaText& b) {
  const int64_t bytes = static_cast<int64_t>(a.size() + b.size());
  if (bytes > kMaxJinjaTextBytes) return JinjaTooLong(bytes);
  JinjaText result = a;
  result.Append(b);
  return JinjaValue::Text(std::move(result));
}

absl::StatusOr<JinjaValue> Add(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return JinjaValue::Float(a.as_float() + b.as_float());
    JinjaInt sum;
    if (__builtin_add_overflow(a.as_int(), b.as_int(), &sum)) return IntegerTooLarge();
    return JinjaValue::Int(sum);
  }
  if (a.is_text() && b.is_text()) return Join(a.text(), b.text());
  const bool lists = a.is_list() && b.is_list();
  if (lists && (a.type_name() == b.type_name())) {
    std::vector<JinjaValue> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return a.list().is_tuple() ? JinjaValue::Tuple(std::move(items))
                               : JinjaValue::List(std::move(items));
  }
  if (a.is_text() && !b.is_undefined()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "can only concatenate str (not \"%s\") to str", std::string(b.type_name())));
  }
  return NoOperation("+", a, b);
}

absl::StatusOr<JinjaValue> Repeat(const JinjaValue& value, JinjaInt times) {
  times = std::max<JinjaInt>(times, 0);
  if (value.is_text()) {
    const JinjaText& text = value.text();
    if (text.empty()) times = 0;
    if (times > kMaxJinjaTextBytes ||
        static_cast<int64_t>(text.size()) * times > kMaxJinjaTextBytes) {
      return JinjaTooLong(kMaxJinjaTextBytes + 1);
    }
    const size_t bytes = text.size() * static_cast<size_t>(times);
    JinjaText result;
    if (bytes > 0) result = text;
    while (result.size() < bytes) {
      result.AppendPart(result, 0, std::min(result.size(), bytes - result.size()));
    }
    return JinjaValue::Text(std::move(result));
  }
  const std::vector<JinjaValue>& items = value.list().items;
  if (items.empty()) times = 0;
  if (times > kMaxJinjaItems || static_cast<int64_t>(items.size()) * times > kMaxJinjaItems) {
    return absl::ResourceExhaustedError(absl::StrCat("list is too long: limit=", kMaxJinjaItems));
  }
  std::vector<JinjaValue> result;
  for (JinjaInt i = 0; i < times; ++i) result.insert(result.end(), items.begin(), items.end());
  return value.list().is_tuple() ? JinjaValue::Tuple(std::move(result))
                                 : JinjaValue::List(std::move(result));
}

bool IsRepeatable(const JinjaValue& value) {
  return value.is_text() || (value.is_list() && (value.list().is_tuple() ||
                                                 value.list().kind == JinjaList::Kind::kList));
}

absl::StatusOr<JinjaValue> Multiply(const JinjaValue& a, const JinjaValue& b) {
  const bool a_int = a.is_int() || a.is_bool();
  const bool b_int = b.is_int() || b.is_bool();
  if (IsRepeatable(a) && b_int) return Repeat(a, b.as_int());
  if (IsRepeatable(b) && a_int) return Repeat(b, a.as_int());
  if (!a.is_number() || !b.is_number()) return NoOperation("*", a, b);
  if (!a_int || !b_int) return JinjaValue::Float(a.as_float() * b.as_float());
  JinjaInt product;
  if (__builtin_mul_overflow(a.as_int(), b.as_int(), &product)) return IntegerTooLarge();
  return JinjaValue::Int(product);
}

// Rounds towards minus infinity, and the remainder has the divisor's sign.
absl::StatusOr<JinjaValue> DivideWhole(JinjaOperator op, const JinjaValue& a, const JinjaValue& b) {
  const bool wants_quotient = op == JinjaOperator::kFloorDivide;
  if (a.is_float() || b.is_float()) {
    const double x = a.as_float(), y = b.as_float();
    double remainder = std::fmod(x, y);
    if (remainder != 0 && (remainder < 0) != (y < 0)) remainder += y;
    return JinjaValue::Float(wants_quotient ? std::round((x - remainder) / y) : remainder);
  }
  const JinjaInt x = a.as_int(), y = b.as_int();
  if (y == -1) {  // The smallest value has no positive twin.
    if (!wants_quotient) return JinjaValue::Int(0);
    JinjaInt negated;
    if (__builtin_sub_overflow(JinjaInt{0}, x, &negated)) return IntegerTooLarge();
    return JinjaValue::Int(negated);
  }
  JinjaInt quotient = x / y;
  JinjaInt remainder = x % y;
  if (remainder != 0 && (remainder < 0) != (y < 0)) {
    --quotient;
    remainder += y;
  }
  return JinjaValue::Int(wants_quotient ? quotient : remainder);
}

absl::StatusOr<JinjaValue> Power(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_float() || b.is_float() || b.as_int() < 0) {
    return JinjaValue::Float(std::pow(a.as_float(), b.as_float()));
  }
  JinjaInt base = a.as_int(), result = 1;
  for (JinjaInt exponent = b.as_int(); exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return IntegerTooLarge();
    }
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return IntegerTooLarge();
  }
  return JinjaValue::Int(result);
}

// Bounds of a slice over `length` elements, as Python's slice.indices.
struct SliceBounds {
  JinjaInt start, stop, step;
};

absl::StatusOr<SliceBounds> ResolveSlice(JinjaInt length, const JinjaValue& start,
                                         const JinjaValue& stop, const JinjaValue& step) {
  for (const JinjaValue* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_int() && !bound->is_bool()) {
      return absl::InvalidArgumentError("slice indices must be integers or None");
    }
  }
  SliceBounds bounds;
  bounds.step = step.is_none() ? 1 : step.as_int();
  if (bounds.step == 0) return absl::InvalidArgumentError("slice step cannot be zero");
  bounds.step = std::clamp(bounds.step, -length - 1, length + 1);
  const bool forward = bounds.step > 0;
  const JinjaInt low = forward ? 0 : -1;
  const JinjaInt high = forward ? length : length - 1;
  const auto resolve = [&](const JinjaValue& bound, JinjaInt when_missing) {
    if (bound.is_none()) return when_missing;
    const JinjaInt value = bound.as_int() < 0 ? bound.as_int() + length : bound.as_int();
    return std::clamp(value, low, high);
  };
  bounds.start = resolve(start, forward ? low : high);
  bounds.stop = resolve(stop, forward ? high : low);
  return bounds;
}

}  // namespace

absl::Status JinjaTooLong(int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("text is too long: bytes=", bytes, " limit=", kMaxJinjaTextBytes));
}

absl::StatusOr<JinjaValue> JinjaArithmetic(JinjaOperator op, const JinjaValue& a,
                                           const JinjaValue& b) {
  if (op == JinjaOperator::kAdd) return Add(a, b);
  if (op == JinjaOperator::kMultiply) return Multiply(a, b);
  if (op == JinjaOperator::kModulo && a.is_text()) {
    ASSIGN_OR_RETURN(JinjaText text, FormatPercent(a.text(), b));
    return JinjaValue::Text(std::move(text));
  }
  const std::string_view symbol = op == JinjaOperator::kSubtract      ? "-"
                                  : op == JinjaOperator::kDivide      ? "/"
                                  : op == JinjaOperator::kFloorDivide ? "//"
                                  : op == JinjaOperator::kModulo      ? "%"
                                                                      : "**";
  if (!a.is_number() || !b.is_number()) return NoOperation(symbol, a, b);
  if (op == JinjaOperator::kPower) return Power(a, b);
  if (op == JinjaOperator::kSubtract) {
    if (a.is_float() || b.is_float()) return JinjaValue::Float(a.as_float() - b.as_float());
    JinjaInt difference;
    if (__builtin_sub_overflow(a.as_int(), b.as_int(), &difference)) return IntegerTooLarge();
    return JinjaValue::Int(difference);
  }
  if (b.as_float() == 0) return absl::InvalidArgumentError("division by zero");
  if (op == JinjaOperator::kDivide) return JinjaValue::Float(a.as_float() / b.as_float());
  return DivideWhole(op, a, b);
}

absl::StatusOr<JinjaValue> JinjaUnary(JinjaOperator op, const JinjaValue& value) {
  if (value.is_undefined()) return absl::InvalidArgumentError(value.undefined_message());
  if (!value.is_number()) {
    return absl::InvalidArgumentError(absl::StrFormat("bad operand type for unary %s: '%s'",
                                                      op == JinjaOperator::kNegate ? "-" : "+",
                                                      std::string(value.type_name())));
  }
  if (op == JinjaOperator::kPlus) {
    return value.is_bool() ? JinjaValue::Int(value.as_int()) : value;
  }
  if (value.is_float()) return JinjaValue::Float(-value.as_float());
  return JinjaArithmetic(JinjaOperator::kSubtract, JinjaValue::Int(0), value);
}

absl::StatusOr<JinjaValue> JinjaSlice(const JinjaValue& value, const JinjaValue& start,
                                      const JinjaValue& stop, const JinjaValue& step) {
  if (value.is_undefined()) return absl::InvalidArgumentError(value.undefined_message());
  if (value.is_text()) {
    const JinjaText& text = value.text();
    const std::vector<size_t> starts = CharacterStarts(text.view());
    ASSIGN_OR_RETURN(const SliceBounds bounds,
                     ResolveSlice(static_cast<JinjaInt>(starts.size()) - 1, start, stop, step));
    if (bounds.step == 1) {
      if (bounds.start >= bounds.stop) return JinjaValue::Text(JinjaText());
      return JinjaValue::Text(text.Part(starts[bounds.start], starts[bounds.stop]));
    }
    JinjaText result;
    for (JinjaInt i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;
         i += bounds.step) {
      result.AppendPart(text, starts[i], starts[i + 1]);
    }
    return JinjaValue::Text(std::move(result));
  }
  if (!value.is_list()) {
    return JinjaValue::MakeUndefined(
        absl::StrCat(std::string(value.type_name()), " object cannot be sliced"));
  }
  const std::vector<JinjaValue>& items = value.list().items;
  ASSIGN_OR_RETURN(const SliceBounds bounds,
                   ResolveSlice(static_cast<JinjaInt>(items.size()), start, stop, step));
  std::vector<JinjaValue> result;
  for (JinjaInt i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;
       i += bounds.step) {
    result.push_back(items[i]);
  }
  JinjaList list{.kind = value.list().kind, .items = std::move(result)};
  if (list.kind == JinjaList::Kind::kGroup) list.kind = JinjaList::Kind::kTuple;
  if (list.kind == JinjaList::Kind::kRange) {
    list.start = value.list().start + bounds.start * value.list().step;
    list.stop = value.list().start + bounds.stop * value.list().step;
    list.step = value.list().step * bounds.step;
  }
  return JinjaValue::Make(std::move(list));
}

}  // namespace cairn
