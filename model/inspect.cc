#include "model/inspect.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/utf8.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxShownStringBytes = size_t{1} << 20;
constexpr int64_t kMaxShownElements = 8;

std::string Dump(const Json& json, int indent) {
  // Bytes of a file that are no UTF-8 must not end the listing.
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Json ShownString(std::string_view text) {
  if (text.size() <= kMaxShownStringBytes) return std::string(text);
  return std::string(text.substr(0, kMaxShownStringBytes)) + "...";
}

Json ScalarJson(const MetadataValue& value) {
  if (const auto flag = value.AsBool()) return *flag;
  if (const auto text = value.AsString()) return ShownString(*text);
  if (const auto integer = value.AsInteger()) return *integer;
  if (const auto number = value.AsNumber()) return *number;
  return nullptr;
}

// A short array as it is, a long one by its type, length and first elements.
Json ArrayJson(const MetadataValue& value) {
  MetadataValue head = value;  // the same bytes, fewer elements
  head.count = std::min(value.count, kMaxShownElements);
  Json elements = Json::array();
  if (const auto texts = head.AsStrings()) {
    for (const std::string_view text : *texts) elements.push_back(ShownString(text));
  } else if (value.element_type == MetadataType::kBool) {
    for (int64_t i = 0; i < head.count; ++i) elements.push_back(value.bytes[i] != std::byte{0});
  } else if (const auto integers = head.AsIntegers()) {
    for (const int64_t integer : *integers) elements.push_back(integer);
  } else if (const auto numbers = head.AsNumbers()) {
    for (const double number : *numbers) elements.push_back(number);
  }
  if (static_cast<int64_t>(elements.size()) == value.count) return elements;
  return {{"element_type", std::string(MetadataTypeName(value.element_type))},
          {"count", value.count},
          {"first", elements}};
}

Json MetadataJson(const Metadata& metadata) {
  Json json = Json::object();
  for (const MetadataEntry& entry : metadata.entries()) {
    json[entry.key] = entry.value.is_array() ? ArrayJson(entry.value) : ScalarJson(entry.value);
  }
  return json;
}

Json AttentionJson(const ModelConfig& config) {
  Json windows = Json::array();
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  return {{"kind", config.attention == AttentionKind::kMla ? "latent" : "grouped"},
          {"score_cap", config.score_cap},
          {"qk_norm", config.qk_norm},
          {"latent_dim", config.mla.latent_dim},
          {"cached_values_per_token", CachedValues(config, 1)},
          {"cached_values_of_context", CachedValues(config, config.context_length)},
          {"windows", windows}};
}

Json ExpertsJson(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  if (!config.has_experts()) return nullptr;
  return {{"count", experts.num_experts},
          {"chosen", experts.num_chosen},
          {"ffn_dim", experts.ffn_dim},
          {"shared_ffn_dim", experts.shared_ffn_dim}};
}

Json ModelJson(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes[0];
  return {{"architecture", config.architecture},
          {"name", config.name},
          {"num_layers", config.num_layers},
          {"model_dim", config.model_dim},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"ffn_dim", config.ffn_dim},
          {"vocab_size", config.vocab_size},
          {"context_length", config.context_length},
          {"norm_eps", config.norm_eps},
          {"attention", AttentionJson(config)},
          {"experts", ExpertsJson(config)},
          {"rotary_pairs", rope.pairs == RotaryPairs::kInterleaved ? "interleaved" : "half_split"},
          {"rotary_dim", rope.rotary_dim},
          {"rope_inverse_frequency", rope.inverse_frequency},
          {"tied_output", config.tied_output},
          {"qkv_bias", config.qkv_bias},
          {"bos_id", config.bos_id},
          {"eos_ids", config.eos_ids},
          {"pad_id", config.pad_id}};
}

struct Listing {
  Json json;
  std::string kv_cache;  // what it takes, in words; empty without a model
  int64_t tensor_bytes = 0;
};

Listing MakeListing(const Checkpoint& checkpoint) {
  Listing listing;
  const bool is_gguf = checkpoint.format() == CheckpointFormat::kGguf;
  Json files = Json::array();
  for (const MappedFile& file : checkpoint.files()) {
    files.push_back({{"path", file.path()}, {"bytes", file.size_bytes()}});
  }
  Json tensors = Json::array();
  for (const Tensor& tensor : checkpoint.tensors()) {
    listing.tensor_bytes += static_cast<int64_t>(tensor.data.size());
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.type_name},
                       {"shape", tensor.shape},
                       {"bytes", tensor.data.size()},
                       {"supported", tensor.dtype.has_value()}});
  }
  Json& json = listing.json;
  json["path"] = checkpoint.path();
  json["format"] = is_gguf ? "gguf" : "safetensors";
  json["files"] = std::move(files);
  if (is_gguf) {
    json["metadata"] = MetadataJson(checkpoint.metadata());
  } else {
    json["config"] = checkpoint.config();
  }
  json["num_tensors"] = checkpoint.tensors().size();
  json["tensor_bytes"] = listing.tensor_bytes;
  json["tensors"] = std::move(tensors);
  json["model"] = nullptr;
  json["problem"] = nullptr;
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(checkpoint);
  const bool has_weights = !checkpoint.files().empty();
  const absl::Status problem =
      config.ok() && has_weights ? ValidateWeights(checkpoint, *config).status() : config.status();
  if (problem.ok()) {
    json["model"] = ModelJson(*config);
    constexpr double kF16Bytes = 2;
    listing.kv_cache = absl::StrFormat(
        "%.1f KiB a token, %.2f GiB of %d tokens", kF16Bytes * CachedValues(*config, 1) / 0x1p10,
        kF16Bytes * CachedValues(*config, config->context_length) / 0x1p30, config->context_length);
  } else {
    json["problem"] = std::string(problem.message());
  }
  return listing;
}

std::string SizeText(int64_t bytes) {
  if (bytes < 10'000) return absl::StrFormat("%d B", bytes);
  if (bytes < 10'000'000) return absl::StrFormat("%.1f kB", bytes / 1e3);
  if (bytes < 10'000'000'000) return absl::StrFormat("%.1f MB", bytes / 1e6);
  return absl::StrFormat("%.1f GB", bytes / 1e9);
}

void AppendPairs(const Json& object, std::string& text) {
  for (const auto& [key, value] : object.items()) {
    const std::string shown = Dump(value, -1);
    absl::StrAppend(&text, "  ", Printable(key), " = ",
                    value.is_string() ? "\"" + Printable(value.get_ref<const std::string&>()) + "\""
                                      : Printable(shown),
                    "\n");
  }
}

std::string ListingText(const Listing& listing, const Checkpoint& checkpoint) {
  const Json& json = listing.json;
  const bool is_gguf = checkpoint.format() == CheckpointFormat::kGguf;
  std::string text = Printable(checkpoint.path());
  if (checkpoint.files().empty()) {
    text += ": a config.json without weights\n";
  } else {
    absl::StrAppend(&text, is_gguf ? ": GGUF, " : ": safetensors, ", checkpoint.tensors().size(),
                    " tensors, ", SizeText(listing.tensor_bytes), " in ", checkpoint.files().size(),
                    checkpoint.files().size() == 1 ? " file\n" : " files\n");
  }
  const Json& pairs = json[is_gguf ? "metadata" : "config"];
  if (pairs.is_object()) {
    absl::StrAppend(&text, "\n", is_gguf ? "metadata" : "config.json", "\n");
    AppendPairs(pairs, text);
  }
  text += "\ntensors\n";
  size_t width = 0;
  for (const Tensor& tensor : checkpoint.tensors()) width = std::max(width, tensor.name.size());
  width = std::min<size_t>(width, 64);
  for (const Tensor& tensor : checkpoint.tensors()) {
    absl::StrAppendFormat(&text, "  %-*s  %-7s %-16s %s%s\n", static_cast<int>(width),
                          Printable(tensor.name), tensor.type_name, ShapeText(tensor.shape),
                          SizeText(static_cast<int64_t>(tensor.data.size())),
                          tensor.dtype.has_value() ? "" : "  (not supported)");
  }
  if (json["problem"].is_null()) {
    text += "\nmodel\n";
    AppendPairs(json["model"], text);
    absl::StrAppend(&text, "\nKV cache at f16: ", listing.kv_cache, "\n");
  } else {
    absl::StrAppend(&text, "\nproblem: ", Printable(json["problem"].get_ref<const std::string&>()),
                    "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> InspectModel(const std::string& path, InspectFormat format) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  const Listing listing = MakeListing(*checkpoint);
  if (format == InspectFormat::kJson) return Dump(listing.json, 1) + "\n";
  return ListingText(listing, *checkpoint);
}

}  // namespace cairn
