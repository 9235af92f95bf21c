// The identity of a block of KV: what it depends on, hashed. Equal keys mean equal bytes, whoever
// computed them and wherever they lie.
//
//   IdentityRoot(model and settings) -> ScopeRoot(layer group, adapter, salts)
//     -> ChildKey(root, tokens of block 0) -> ChildKey(that key, tokens of block 1) -> ...
//
// Every hash opens with a domain of its own and every field has a fixed size or opens with its
// length, so no two different inputs are encoded alike.
// Thread: any. Errors: only those of ParseBlockKey.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace cairn {

struct BlockKey {
  static constexpr int kBytes = 32;  // a SHA-256 digest
  std::array<uint8_t, kBytes> bytes{};

  friend bool operator==(const BlockKey&, const BlockKey&) = default;
  friend auto operator<=>(const BlockKey&, const BlockKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const BlockKey& key) {
    uint64_t head;
    std::memcpy(&head, key.bytes.data(), sizeof head);
    return H::combine(std::move(state), head);
  }
};

// What the KV of a model depends on besides the tokens; complete after loading. Texts are compared
// byte by byte: whoever fills them writes one canonical form.
struct KvIdentity {
  std::string weights{};          // content hash of the weights
  std::string architecture{};     // every field of the graph, and the rope parameters
  std::string tokenizer{};        // hash of the vocabulary
  std::string activations{};      // "f32", "int8"
  std::string kv_dtype{};         // "f32", "f16", "bf16"
  std::string kv_quantisation{};  // empty: none
  std::string attention{};        // "full", or what an attention that drops or moves tokens needs
  int32_t block_tokens = 0;
  int32_t layout_version = 0;  // of the bytes in a block
  std::string numerics{};      // "exact", "fast"
  int32_t numerics_version = 0;
};

// What sets requests to one model apart.
struct KvScope {
  int32_t layer_group = 0;    // the layers that share attention kind and window
  std::string adapter{};      // hash of the LoRA weights; empty: none
  std::string tenant_salt{};  // from the authenticated tenant
  std::string cache_salt{};   // chosen by the caller; narrows the tenant's, never widens it
};

// The bytes that are hashed: equal only for equal arguments.
std::string EncodeIdentity(const KvIdentity& identity);
std::string EncodeScope(const BlockKey& identity_root, const KvScope& scope);

BlockKey IdentityRoot(const KvIdentity& identity);
BlockKey ScopeRoot(const BlockKey& identity_root, const KvScope& scope);
// The key of the block that holds `tokens` after the block (or root) of `parent`.
BlockKey ChildKey(const BlockKey& parent, std::span<const int32_t> tokens);

inline std::string_view AsBytes(const BlockKey& key) {
  return {reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()};
}
// The reverse of AsBytes. Errors: InvalidArgument if `bytes` is not kBytes long.
absl::StatusOr<BlockKey> ParseBlockKey(std::string_view bytes);

}  // namespace cairn
