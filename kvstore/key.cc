#include "kvstore/key.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace cairn {
namespace {

// A new encoding takes a new version here: keys of both then never meet.
constexpr std::string_view kIdentityDomain = "cairn.kv.identity.1";
constexpr std::string_view kScopeDomain = "cairn.kv.scope.1";
constexpr std::string_view kBlockDomain = "cairn.kv.block.1";

// Little-endian, as memory is.
template <typename Integer>
void AppendIntegers(std::span<const Integer> values, std::string* out) {
  static_assert(std::endian::native == std::endian::little);
  const auto bytes = std::as_bytes(values);
  out->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

template <typename Integer>
void AppendInteger(Integer value, std::string* out) {
  AppendIntegers(std::span<const Integer>(&value, 1), out);
}

void AppendField(std::string_view field, std::string* out) {
  AppendInteger(static_cast<uint64_t>(field.size()), out);
  out->append(field);
}

BlockKey HashToKey(std::string_view bytes) { return BlockKey{HashSha256(bytes)}; }

}  // namespace

std::string EncodeIdentity(const KvIdentity& identity) {
  std::string out;
  AppendField(kIdentityDomain, &out);
  AppendField(identity.weights, &out);
  AppendField(identity.architecture, &out);
  AppendField(identity.tokenizer, &out);
  AppendField(identity.activations, &out);
  AppendField(identity.kv_dtype, &out);
  AppendField(identity.kv_quantisation, &out);
  AppendField(identity.attention, &out);
  AppendInteger(identity.block_tokens, &out);
  AppendInteger(identity.layout_version, &out);
  AppendField(identity.numerics, &out);
  AppendInteger(identity.numerics_version, &out);
  return out;
}

std::string EncodeScope(const BlockKey& identity_root, const KvScope& scope) {
  std::string out;
  AppendField(kScopeDomain, &out);
  AppendField(AsBytes(identity_root), &out);
  AppendInteger(scope.layer_group, &out);
  AppendField(scope.adapter, &out);
  AppendField(scope.tenant_salt, &out);
  AppendField(scope.cache_salt, &out);
  return out;
}

BlockKey IdentityRoot(const KvIdentity& identity) { return HashToKey(EncodeIdentity(identity)); }

BlockKey ScopeRoot(const BlockKey& identity_root, const KvScope& scope) {
  return HashToKey(EncodeScope(identity_root, scope));
}

BlockKey ChildKey(const BlockKey& parent, std::span<const int32_t> tokens) {
  std::string out;
  out.reserve(2 * sizeof(uint64_t) + kBlockDomain.size() + BlockKey::kBytes +
              tokens.size() * sizeof(int32_t));
  AppendField(kBlockDomain, &out);
  out.append(AsBytes(parent));
  AppendInteger(static_cast<uint64_t>(tokens.size()), &out);
  AppendIntegers(tokens, &out);
  return HashToKey(out);
}

absl::StatusOr<BlockKey> ParseBlockKey(std::string_view bytes) {
  if (bytes.size() != BlockKey::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block key has the wrong length: bytes=", bytes.size(), " expected=", BlockKey::kBytes));
  }
  BlockKey key;
  std::memcpy(key.bytes.data(), bytes.data(), bytes.size());
  return key;
}

}  // namespace cairn
