#include "model/parameter_reader.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/json_text.h"
#include "model/utf8.h"

namespace cairn {
namespace {

// Elements of an array with one value per layer.
constexpr int64_t kMaxLayerValues = 4096;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string ParameterReader::FullKey(std::string_view key) const {
  return absl::StrCat(prefix_, View(key));
}

ParameterReader::Value ParameterReader::LookupMetadata(std::string_view key) const {
  const MetadataValue* const value = metadata_->Find(FullKey(key));
  if (value == nullptr) return Absent{};
  if (const auto flag = value->AsBool()) return *flag;
  if (const auto text = value->AsString()) return std::string(*text);
  if (const auto integer = value->AsInteger()) return *integer;
  if (const auto number = value->AsNumber()) return *number;
  if (!value->is_array() || value->count == 0 || value->count > kMaxLayerValues) return Other{};
  const auto all_equal = [](const auto& elements) {
    return std::all_of(elements.begin(), elements.end(),
                       [&](const auto& element) { return element == elements[0]; });
  };
  if (const auto integers = value->AsIntegers()) {
    if (all_equal(*integers)) return integers->front();
    return Varied{};
  }
  if (const auto numbers = value->AsNumbers()) {
    if (all_equal(*numbers)) return numbers->front();
    return Varied{};
  }
  return Other{};
}

ParameterReader::Value ParameterReader::LookupJson(std::string_view key) const {
  const auto found = object_->find(key);
  if (found == object_->end() || found->is_null()) return Absent{};
  if (found->is_boolean()) return found->get<bool>();
  if (found->is_string()) return found->get_ref<const std::string&>();
  if (found->is_number_float()) return found->get<double>();
  if (found->is_number_unsigned()) {
    const auto value = found->get<uint64_t>();
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return static_cast<double>(value);
    }
    return static_cast<int64_t>(value);
  }
  if (found->is_number_integer()) return found->get<int64_t>();
  return Other{};
}

ParameterReader::Value ParameterReader::Lookup(std::string_view key) const {
  return metadata_ != nullptr ? LookupMetadata(key) : LookupJson(key);
}

bool ParameterReader::Has(std::string_view key) const {
  return !std::holds_alternative<Absent>(Lookup(key));
}

absl::Status ParameterReader::Missing(std::string_view key) const {
  return absl::InvalidArgumentError(absl::StrCat(FullKey(key), " is missing"));
}

std::string ParameterReader::OddValue(std::string_view key) const {
  if (metadata_ == nullptr) return ShortJson(*object_->find(key));
  const MetadataValue& value = *metadata_->Find(FullKey(key));
  return value.is_array() ? absl::StrCat("a list of ", value.count) : "a value of another type";
}

absl::Status ParameterReader::WrongType(std::string_view key, const Value& value,
                                        std::string_view wanted) const {
  if (std::holds_alternative<Varied>(value)) {
    return absl::UnimplementedError(
        absl::StrCat(FullKey(key), " differs from layer to layer, which the graph does not have"));
  }
  std::string text;
  if (std::holds_alternative<Other>(value)) text = OddValue(key);
  if (const auto* s = std::get_if<std::string>(&value)) text = "\"" + Printable(*s) + "\"";
  if (const auto* i = std::get_if<int64_t>(&value)) text = absl::StrCat(*i);
  if (const auto* d = std::get_if<double>(&value)) text = absl::StrCat(*d);
  if (const auto* b = std::get_if<bool>(&value)) text = *b ? "true" : "false";
  return absl::InvalidArgumentError(
      absl::StrCat(FullKey(key), " is not ", View(wanted), ": value=", text));
}

absl::Status ParameterReader::WrongList(std::string_view key, std::string_view wanted,
                                        int max_count) const {
  return absl::InvalidArgumentError(absl::StrCat(FullKey(key), " is not ", View(wanted),
                                                 ": value=", OddValue(key), " limit=", max_count));
}

absl::StatusOr<int> ParameterReader::Int(std::string_view key, IntLimits limits,
                                         std::optional<int> fallback) const {
  const Value value = Lookup(key);
  if (std::holds_alternative<Absent>(value)) {
    if (fallback.has_value()) return *fallback;
    return Missing(key);
  }
  const auto* const integer = std::get_if<int64_t>(&value);
  if (integer == nullptr) return WrongType(key, value, "an integer");
  if (*integer < limits.min || *integer > limits.max) {
    return absl::InvalidArgumentError(absl::StrCat(FullKey(key),
                                                   " is out of range: value=", *integer,
                                                   " min=", limits.min, " max=", limits.max));
  }
  return static_cast<int>(*integer);
}

absl::StatusOr<double> ParameterReader::Number(std::string_view key, NumberLimits limits,
                                               std::optional<double> fallback) const {
  const Value value = Lookup(key);
  if (std::holds_alternative<Absent>(value)) {
    if (fallback.has_value()) return *fallback;
    return Missing(key);
  }
  double number = 0;
  if (const auto* const integer = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*integer);
  } else if (const auto* const real = std::get_if<double>(&value)) {
    number = *real;
  } else {
    return WrongType(key, value, "a number");
  }
  if (!(number >= limits.min && number <= limits.max)) {
    return absl::InvalidArgumentError(absl::StrCat(FullKey(key), " is out of range: value=", number,
                                                   " min=", limits.min, " max=", limits.max));
  }
  return number;
}

absl::StatusOr<bool> ParameterReader::Flag(std::string_view key, bool fallback) const {
  const Value value = Lookup(key);
  if (std::holds_alternative<Absent>(value)) return fallback;
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag;
  return WrongType(key, value, "true or false");
}

absl::StatusOr<std::string> ParameterReader::Text(std::string_view key,
                                                  std::optional<std::string> fallback) const {
  const Value value = Lookup(key);
  if (std::holds_alternative<Absent>(value)) {
    if (fallback.has_value()) return *fallback;
    return Missing(key);
  }
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  return WrongType(key, value, "a text");
}

absl::StatusOr<std::vector<int64_t>> ParameterReader::Integers(std::string_view key,
                                                               int max_count) const {
  if (!Has(key)) return std::vector<int64_t>{};
  const auto wrong = [&] { return WrongList(key, "an integer or a list of integers", max_count); };
  if (metadata_ != nullptr) {
    const MetadataValue& value = *metadata_->Find(FullKey(key));
    if (const auto integer = value.AsInteger()) return std::vector<int64_t>{*integer};
    if (value.count > max_count) return wrong();
    const auto integers = value.AsIntegers();
    if (!integers.has_value()) return wrong();
    return *integers;
  }
  const nlohmann::json& value = *object_->find(key);
  if (value.is_array() && value.size() > static_cast<size_t>(max_count)) return wrong();
  std::vector<int64_t> integers;
  // A number counts as a list of itself.
  for (const nlohmann::json& element : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!element.is_number_integer()) return wrong();
    integers.push_back(element.get<int64_t>());
  }
  return integers;
}

absl::StatusOr<std::vector<std::string>> ParameterReader::Texts(std::string_view key,
                                                                int max_count) const {
  std::vector<std::string> texts;
  if (!Has(key)) return texts;
  const auto wrong = [&] { return WrongList(key, "a list of texts", max_count); };
  if (metadata_ != nullptr) {
    const MetadataValue& value = *metadata_->Find(FullKey(key));
    if (value.count > max_count) return wrong();
    const auto views = value.AsStrings();
    if (!views.has_value()) return wrong();
    texts.assign(views->begin(), views->end());
    return texts;
  }
  const nlohmann::json& value = *object_->find(key);
  if (!value.is_array() || value.size() > static_cast<size_t>(max_count)) return wrong();
  for (const nlohmann::json& element : value) {
    if (!element.is_string()) return wrong();
    texts.push_back(element.get_ref<const std::string&>());
  }
  return texts;
}

}  // namespace cairn
