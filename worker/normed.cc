#include "worker/normed.h"

namespace cairn {

absl::Status NormedRows::Allocate(int64_t num_rows, int64_t dim, ActivationFormat activations,
                                  std::string_view what) {
  const auto allocate = [&](ActivationFormat format, HostBuffer* buffer,
                            Activations* rows) -> absl::Status {
    const int64_t blocks = BlocksFor(dim);
    ASSIGN_OR_RETURN(*buffer,
                     HostBuffer::Allocate(num_rows * Activations::RowBytes(format, blocks), what));
    *rows = {format, buffer->data(), blocks};
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(allocate(ActivationFormat::kF32, &f32_, &rows_.f32));
  if (activations == ActivationFormat::kF32) return absl::OkStatus();
  return allocate(activations, &quantised_, &rows_.quantised);
}

}  // namespace cairn
