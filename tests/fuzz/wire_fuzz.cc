// Any bytes as what a peer inside the cluster may send: the first byte chooses the decoder. What is
// taken encodes to something that is taken again and encodes alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "proto/control.h"
#include "worker/step.h"

namespace {

template <typename Decode, typename Encode>
void RoundTrip(const std::string& bytes, Decode decode, Encode encode) {
  const auto message = decode(bytes);
  if (!message.ok()) return;
  const std::string again = encode(*message);
  const auto second = decode(again);
  if (!second.ok() || encode(*second) != again) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      RoundTrip(bytes, cairn::DecodeWorkerMessage, cairn::EncodeWorkerMessage);
      break;
    case 1:
      RoundTrip(bytes, cairn::DecodeCoordinatorMessage, cairn::EncodeCoordinatorMessage);
      break;
    case 2:
      RoundTrip(bytes, cairn::DecodeStepPlan, cairn::EncodeStepPlan);
      break;
  }
  return 0;
}
