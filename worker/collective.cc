#include "worker/collective.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/memory.h"
#include "worker/group_limits.h"

namespace cairn {
namespace {

class SoloCollective final : public Collective {
 public:
  SoloCollective(HostBuffer buffers, int64_t stride_bytes, int64_t max_message_bytes)
      : buffers_(std::move(buffers)),
        stride_bytes_(stride_bytes),
        max_message_bytes_(max_message_bytes) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  int64_t max_message_bytes() const override { return max_message_bytes_; }
  std::byte* Outbox() override { return buffers_.data() + turn_ % 2 * stride_bytes_; }

  absl::Status AllGatherV(int64_t bytes) override {
    CHECK(bytes >= 0 && bytes <= max_message_bytes_) << bytes;
    inbox_ = {Outbox(), static_cast<size_t>(bytes)};
    ++turn_;
    return absl::OkStatus();
  }
  std::span<const std::byte> Inbox(int rank) const override {
    CHECK_EQ(rank, 0);
    return inbox_;
  }
  absl::Status AllReduceSum(std::span<float>) override { return absl::OkStatus(); }
  void SetTimeout(absl::Duration) override {}

 private:
  const HostBuffer buffers_;
  const int64_t stride_bytes_;
  const int64_t max_message_bytes_;
  uint32_t turn_ = 0;
  std::span<const std::byte> inbox_;
};

absl::Status WrongBroadcast(int root) {
  return absl::UnavailableError(absl::StrCat("broadcast of a wrong length: rank=", root));
}

absl::Status CheckBroadcast(uint64_t bytes) {
  if (bytes <= static_cast<uint64_t>(kMaxBroadcastBytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("broadcast too long: bytes=", bytes, " limit=", kMaxBroadcastBytes));
}

// The first message of a broadcast is the total, eight bytes, and as much of the data as fits.
absl::Status BroadcastHead(Collective& collective, int root, std::string* data, uint64_t* total) {
  const bool is_root = collective.rank() == root;
  const uint64_t room = collective.max_message_bytes() - sizeof *total;
  int64_t head_bytes = 0;
  if (is_root) {
    *total = data->size();
    // Data too long goes nowhere, but the others must learn that it is.
    const size_t first = CheckBroadcast(*total).ok() ? std::min(*total, room) : 0;
    memcpy(collective.Outbox(), total, sizeof *total);
    memcpy(collective.Outbox() + sizeof *total, data->data(), first);
    head_bytes = static_cast<int64_t>(sizeof *total + first);
  }
  RETURN_IF_ERROR(collective.AllGatherV(head_bytes));
  const std::span<const std::byte> inbox = collective.Inbox(root);
  if (inbox.size() < sizeof *total) return WrongBroadcast(root);
  memcpy(total, inbox.data(), sizeof *total);
  RETURN_IF_ERROR(CheckBroadcast(*total));
  if (inbox.size() - sizeof *total != std::min(*total, room)) return WrongBroadcast(root);
  if (!is_root) {
    data->assign(reinterpret_cast<const char*>(inbox.data()) + sizeof *total,
                 inbox.size() - sizeof *total);
  }
  return absl::OkStatus();
}

// The part of `bytes` bytes that follows the first `offset`.
absl::Status BroadcastPart(Collective& collective, int root, size_t offset, size_t bytes,
                           std::string* data) {
  const bool is_root = collective.rank() == root;
  if (is_root) memcpy(collective.Outbox(), data->data() + offset, bytes);
  RETURN_IF_ERROR(collective.AllGatherV(is_root ? static_cast<int64_t>(bytes) : 0));
  const std::span<const std::byte> inbox = collective.Inbox(root);
  if (inbox.size() != bytes) return WrongBroadcast(root);
  // Appended as it comes: no claimed total is allocated before its bytes are here.
  if (!is_root) data->append(reinterpret_cast<const char*>(inbox.data()), bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGroup(int rank, int size, int64_t max_message_bytes) {
  if (size < 1 || size > kMaxGroupSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("group size out of range: size=", size, " limit=", kMaxGroupSize));
  }
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank out of range: rank=", rank, " size=", size));
  }
  if (max_message_bytes < kMinMessageBytes || max_message_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_message_bytes out of range: value=", max_message_bytes,
                     " least=", kMinMessageBytes, " limit=", kMaxMessageBytes));
  }
  return absl::OkStatus();
}

std::string CleanReason(std::string_view reason) {
  reason = reason.substr(0, std::min(reason.size(), kMaxReasonBytes));
  std::string clean(reason.substr(0, reason.find('\0')));
  for (char& c : clean) {
    if (c < ' ' || c > '~') c = '?';
  }
  return clean;
}

void SumInRankOrder(std::span<const float* const> parts, size_t count, float* out) {
  // A sum of this length stays in the first-level cache while the ranks are added to it.
  constexpr size_t kBlock = 1024;
  alignas(64) float sum[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    memcpy(sum, parts[0] + begin, length * sizeof(float));
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      const float* part = parts[rank] + begin;
      for (size_t i = 0; i < length; ++i) sum[i] += part[i];
    }
    memcpy(out + begin, sum, length * sizeof(float));
  }
}

absl::Status Broadcast(Collective& collective, int root, std::string* data) {
  CHECK(root >= 0 && root < collective.size()) << root;
  if (collective.size() == 1) return CheckBroadcast(data->size());
  const uint64_t room = collective.max_message_bytes();
  CHECK(room >= kMinMessageBytes);
  uint64_t total = 0;
  RETURN_IF_ERROR(BroadcastHead(collective, root, data, &total));
  uint64_t sent = std::min(total, room - sizeof total);
  while (sent < total) {
    const uint64_t part = std::min(total - sent, room);
    RETURN_IF_ERROR(BroadcastPart(collective, root, sent, part, data));
    sent += part;
  }
  return absl::OkStatus();
}

std::unique_ptr<Collective> NewSoloCollective(int64_t max_message_bytes) {
  CHECK(max_message_bytes >= 0 && max_message_bytes <= kMaxMessageBytes) << max_message_bytes;
  const int64_t stride_bytes = (max_message_bytes + 63) / 64 * 64;
  absl::StatusOr<HostBuffer> buffers = HostBuffer::Allocate(2 * stride_bytes, "collective outbox");
  CHECK(buffers.ok()) << buffers.status();
  return std::make_unique<SoloCollective>(*std::move(buffers), stride_bytes, max_message_bytes);
}

}  // namespace cairn
