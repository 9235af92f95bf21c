// A model's files, opened and checked: GGUF, whole or any part of a split model (the others lie
// beside it), one safetensors file, or a directory with config.json and safetensors (one file, or
// shards and their index). A config.json alone is a checkpoint without tensors: what a model would
// need can be said before its weights are there.
//
// Files are mapped, not read: a tensor is a view into the file, so a rank touches only the bytes it
// needs. Every header field is taken as hostile: sizes are computed with checked arithmetic and
// compared with the file before anything is allocated, and nothing here allocates more than a small
// multiple of the header bytes that are really there. A file that shrinks while it is mapped ends
// the process with SIGBUS when the lost part is read: model files must not be changed in place.
//
// Thread: any, after Open; a Checkpoint never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/mapped_file.h"
#include "model/gguf_split.h"
#include "model/metadata.h"

namespace cairn {

inline constexpr int64_t kMaxTensors = int64_t{1} << 20;
inline constexpr int kMaxTensorRank = 8;  // GGUF itself has at most 4
inline constexpr int64_t kMaxTensorNameBytes = 1024;
inline constexpr int kMaxShards = 4096;
inline constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;  // each JSON file of a directory

struct Tensor {
  std::string name;  // non-empty UTF-8 without NUL, unique in the checkpoint
  // What the runtime can compute with; unset for a type it only knows by name.
  std::optional<DType> dtype = {};
  std::string type_name = {};  // as the format calls it: "F32", "Q4_1", "IQ4_XS", "I64", "type 99"
  std::vector<int64_t> shape = {};  // outermost first: [rows, columns]; a zero extent is legal
  int64_t num_elements = 0;
  // The bytes in the file, row after row; empty for a zero extent, and where the size of the type
  // is unknown (type_name then says "type N"). Aligned to 8 in GGUF, not at all in safetensors.
  std::span<const std::byte> data = {};
  // Of a matrix of type kF8E4M3, which has a dtype only with them: the tensor with its scales, of
  // type kF32 or kBF16 (base/dtype.h). In the same checkpoint.
  const Tensor* scales = nullptr;
};

// "[576, 1536]"
std::string ShapeText(std::span<const int64_t> shape);

enum class CheckpointFormat : uint8_t { kGguf, kSafetensors };

class Checkpoint {
 public:
  // Errors: NotFound if the path or a file that the index names is not there; InvalidArgument, one
  // line with the file, the field, the value and the limit, if a file is damaged or of no known
  // format; Unavailable or PermissionDenied from the system.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  CheckpointFormat format() const { return format_; }
  const std::string& path() const { return path_; }  // as given to Open
  bool is_directory() const { return is_directory_; }

  // In byte order of their names.
  std::span<const Tensor> tensors() const { return tensors_; }
  // nullptr if there is none of that name. The pointer lives as long as the checkpoint.
  const Tensor* Find(std::string_view name) const;

  // GGUF's typed key-values, of a split model those of its first part; empty for safetensors.
  const Metadata& metadata() const { return metadata_; }
  // config.json, and generation_config.json of a directory; null values otherwise.
  const nlohmann::json& config() const { return *config_; }
  const nlohmann::json& generation_config() const { return *generation_config_; }

  // The files that may hold tensors, in the order of their names.
  std::span<const MappedFile> files() const { return files_; }

 private:
  Checkpoint();
  absl::Status OpenGguf(MappedFile file);
  absl::Status OpenGgufParts(const GgufSplit& split);
  absl::Status OpenSafetensors(MappedFile file);
  absl::Status ReadConfig(const std::string& path);
  absl::Status OpenDirectory();
  absl::Status OpenDirectoryTensors();
  absl::Status OpenShards(const std::string& index_path);
  // Sorts the tensors by name. Errors: InvalidArgument if a name is there twice.
  absl::Status IndexTensors();

  std::string path_;
  CheckpointFormat format_ = CheckpointFormat::kGguf;
  bool is_directory_ = false;
  std::vector<MappedFile> files_;
  std::vector<Tensor> tensors_;
  Metadata metadata_;
  std::unique_ptr<nlohmann::json> config_;
  std::unique_ptr<nlohmann::json> generation_config_;
};

}  // namespace cairn
