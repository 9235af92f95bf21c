#include "model/checkpoint.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "model/float8_scales.h"
#include "model/gguf.h"
#include "model/json_text.h"
#include "model/safetensors.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr JsonLimits kConfigLimits = {.max_bytes = kMaxConfigBytes, .max_depth = 64};
// An index names every tensor of the largest models.
constexpr JsonLimits kIndexLimits = {.max_bytes = int64_t{256} << 20, .max_depth = 8};
constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";

bool Exists(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Says which *.safetensors of a folder take no part: left over from another conversion, say.
void WarnOfStrayShards(const std::string& directory, const std::vector<std::string>& used) {
  DIR* const stream = opendir(directory.c_str());
  if (stream == nullptr) return;
  while (const dirent* const entry = readdir(stream)) {
    const std::string name = entry->d_name;
    const bool is_shard = name.size() > 12 && name.ends_with(".safetensors");
    if (is_shard && std::find(used.begin(), used.end(), name) == used.end()) {
      LOG(WARNING) << "stray_shard_ignored directory=" << Printable(directory)
                   << " file=" << Printable(name);
    }
  }
  closedir(stream);
}

// An index into the names of the files. The keys are views of the tensors' names.
using FileOfTensor = std::unordered_map<std::string_view, int>;

// Notes where the tensors of the last of `files` are. Errors: InvalidArgument if one of them is in
// another file too.
absl::Status NoteTensors(std::span<const Tensor> tensors, std::span<const std::string> files,
                         FileOfTensor* file_of_tensor) {
  const int index = static_cast<int>(files.size()) - 1;
  for (const Tensor& tensor : tensors) {
    const auto [other, is_new] = file_of_tensor->emplace(tensor.name, index);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Printable(tensor.name),
                                                   " is in two files: ", files[other->second],
                                                   " and ", files[index]));
  }
  return absl::OkStatus();
}

std::vector<Tensor> Joined(std::vector<std::vector<Tensor>> parts) {
  std::vector<Tensor> all;
  for (std::vector<Tensor>& part : parts) {
    std::move(part.begin(), part.end(), std::back_inserter(all));
  }
  return all;
}

// Checks both directions: every listed tensor is in the shard named for it, and no shard has one
// that is not listed there.
absl::Status CheckAgainstIndex(const ShardIndex& index, const FileOfTensor& shard_of_tensor) {
  for (const ShardIndex::Entry& entry : index.entries) {
    const auto found = shard_of_tensor.find(entry.tensor);
    if (found == shard_of_tensor.end() || found->second != entry.file_index) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Printable(entry.tensor), " is listed in shard ",
                       index.files[entry.file_index], " but is not there"));
    }
  }
  if (shard_of_tensor.size() == index.entries.size()) return absl::OkStatus();
  for (const auto& [name, file_index] : shard_of_tensor) {
    const auto listed = std::lower_bound(
        index.entries.begin(), index.entries.end(), name,
        [](const ShardIndex::Entry& entry, std::string_view n) { return entry.tensor < n; });
    if (listed == index.entries.end() || listed->tensor != name) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", index.files[file_index],
                                                     " has tensor ", Printable(name),
                                                     ", which the index does not list"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShapeText(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

Checkpoint::Checkpoint()
    : config_(std::make_unique<nlohmann::json>()),
      generation_config_(std::make_unique<nlohmann::json>()) {}

Checkpoint::~Checkpoint() = default;

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->path_ = path;
  if (IsDirectory(path)) {
    RETURN_IF_ERROR(checkpoint->OpenDirectory());
    return checkpoint;
  }
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  if (IsGguf(file.bytes()) || path.ends_with(".gguf")) {
    RETURN_IF_ERROR(Annotate(checkpoint->OpenGguf(std::move(file)), path));
  } else if (IsSafetensors(file.bytes()) || path.ends_with(".safetensors")) {
    RETURN_IF_ERROR(Annotate(checkpoint->OpenSafetensors(std::move(file)), path));
  } else if (path.ends_with(".json")) {
    checkpoint->format_ = CheckpointFormat::kSafetensors;
    RETURN_IF_ERROR(checkpoint->ReadConfig(path));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": neither GGUF nor safetensors, by its first bytes"));
  }
  return checkpoint;
}

absl::Status Checkpoint::ReadConfig(const std::string& path) {
  ASSIGN_OR_RETURN(*config_, ReadJsonFile(path, kConfigLimits));
  if (config_->is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
}

absl::Status Checkpoint::OpenGguf(MappedFile file) {
  format_ = CheckpointFormat::kGguf;
  ASSIGN_OR_RETURN(GgufContents contents, ParseGguf(file.bytes()));
  ASSIGN_OR_RETURN(const std::optional<GgufSplit> split, ReadGgufSplit(contents.metadata));
  if (split.has_value()) return OpenGgufParts(*split);
  metadata_ = std::move(contents.metadata);
  tensors_ = std::move(contents.tensors);
  files_.push_back(std::move(file));
  return IndexTensors();
}

absl::Status Checkpoint::OpenGgufParts(const GgufSplit& split) {
  std::vector<std::string> paths;
  FileOfTensor file_of_tensor;
  std::vector<std::vector<Tensor>> parts;
  for (int64_t i = 0; i < split.count; ++i) {
    ASSIGN_OR_RETURN(std::string path, GgufPartPath(path_, split, i));
    absl::StatusOr<MappedFile> file = MappedFile::Open(path);
    if (!file.ok()) {
      return Annotate(file.status(), absl::StrCat("part ", i + 1, " of ", split.count));
    }
    absl::StatusOr<GgufContents> contents = ParseGguf(file->bytes());
    if (!contents.ok()) return Annotate(contents.status(), path);
    if (i == 0) metadata_ = std::move(contents->metadata);
    const Metadata& metadata = i == 0 ? metadata_ : contents->metadata;
    RETURN_IF_ERROR(Annotate(CheckGgufPart(metadata_, split, metadata, i), path));
    paths.push_back(std::move(path));
    parts.push_back(std::move(contents->tensors));  // before its names are viewed
    RETURN_IF_ERROR(NoteTensors(parts.back(), paths, &file_of_tensor));
    files_.push_back(*std::move(file));
  }
  if (static_cast<int64_t>(file_of_tensor.size()) != split.num_tensors) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the parts have another number of tensors than they say: tensors=", file_of_tensor.size(),
        " split.tensors.count=", split.num_tensors));
  }
  tensors_ = Joined(std::move(parts));
  return IndexTensors();
}

absl::Status Checkpoint::OpenSafetensors(MappedFile file) {
  format_ = CheckpointFormat::kSafetensors;
  ASSIGN_OR_RETURN(tensors_, ParseSafetensors(file.bytes()));
  files_.push_back(std::move(file));
  return IndexTensors();
}

absl::Status Checkpoint::OpenDirectory() {
  is_directory_ = true;
  const std::string config_path = path_ + "/config.json";
  if (!Exists(config_path)) {
    return absl::NotFoundError(absl::StrCat(path_, ": the directory has no config.json"));
  }
  RETURN_IF_ERROR(ReadConfig(config_path));
  const std::string generation_path = path_ + "/generation_config.json";
  if (Exists(generation_path)) {
    ASSIGN_OR_RETURN(*generation_config_, ReadJsonFile(generation_path, kConfigLimits));
  }
  RETURN_IF_ERROR(OpenDirectoryTensors());
  const auto quantization = config_->find("quantization_config");
  // A model of another quantisation can be listed, though nothing computes with it.
  if (quantization == config_->end() || !CheckQuantization(*quantization).ok()) {
    return absl::OkStatus();
  }
  return Annotate(LinkFloat8Scales(tensors_), path_);
}

absl::Status Checkpoint::OpenDirectoryTensors() {
  const std::string index_path = absl::StrCat(path_, "/", kIndexName);
  if (Exists(index_path)) return Annotate(OpenShards(index_path), index_path);
  const std::string single_path = absl::StrCat(path_, "/", kSingleName);
  if (!Exists(single_path)) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": the directory has neither ", kSingleName, " nor ", kIndexName));
  }
  WarnOfStrayShards(path_, {kSingleName});
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(single_path));
  return Annotate(OpenSafetensors(std::move(file)), single_path);
}

absl::Status Checkpoint::OpenShards(const std::string& index_path) {
  format_ = CheckpointFormat::kSafetensors;
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonFile(index_path, kIndexLimits));
  ASSIGN_OR_RETURN(const ShardIndex index, ParseShardIndex(json));
  WarnOfStrayShards(path_, index.files);
  FileOfTensor shard_of_tensor;
  std::vector<std::vector<Tensor>> shards;
  for (int i = 0; i < static_cast<int>(index.files.size()); ++i) {
    const std::string& name = index.files[i];
    absl::StatusOr<MappedFile> file = MappedFile::Open(absl::StrCat(path_, "/", name));
    if (!file.ok()) {
      return Annotate(file.status(), absl::StrCat("shard ", name, ", which the index lists"));
    }
    absl::StatusOr<std::vector<Tensor>> tensors = ParseSafetensors(file->bytes());
    if (!tensors.ok()) return Annotate(tensors.status(), absl::StrCat("shard ", name));
    shards.push_back(*std::move(tensors));  // before its names are viewed
    RETURN_IF_ERROR(
        NoteTensors(shards.back(), std::span(index.files).first(i + 1), &shard_of_tensor));
    files_.push_back(*std::move(file));
  }
  RETURN_IF_ERROR(CheckAgainstIndex(index, shard_of_tensor));
  tensors_ = Joined(std::move(shards));
  return IndexTensors();
}

absl::Status Checkpoint::IndexTensors() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors_.size(); ++i) {
    if (tensors_[i].name == tensors_[i - 1].name) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Printable(tensors_[i].name), ": the name is there twice"));
    }
  }
  return absl::OkStatus();
}

const Tensor* Checkpoint::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const Tensor& tensor, std::string_view n) { return tensor.name < n; });
  if (found == tensors_.end() || found->name != name) return nullptr;
  return &*found;
}

}  // namespace cairn
