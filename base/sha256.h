// SHA-256, HMAC-SHA256 and what goes with them. Content addressing and the cluster hello use these;
// the work is OpenSSL's.
//
// Thread: a Sha256 belongs to one thread at a time; the functions may be called from any.
// Errors: none; OpenSSL running out of memory ends the process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/unique_handle.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace cairn {

using Sha256Digest = std::array<uint8_t, 32>;

// A hash in the making. Copying forks it: a shared head is hashed once.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256& other);
  Sha256& operator=(const Sha256& other);
  Sha256(Sha256&&) = default;
  Sha256& operator=(Sha256&&) = default;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view bytes);
  // The digest of all bytes so far; the object then starts anew.
  Sha256Digest Finish();

 private:
  static void Destroy(evp_md_ctx_st* context);
  UniqueHandle<evp_md_ctx_st*, Destroy> context_;
};

Sha256Digest HashSha256(std::string_view bytes);
Sha256Digest HashSha256(std::span<const std::byte> bytes);
Sha256Digest HmacSha256(std::string_view key, std::string_view message);

// Whether a and b are equal, in a time that depends on their sizes only. For comparing codes that
// an attacker may guess byte by byte.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

// The bytes of a digest as text, for the functions above that take text.
inline std::string_view AsBytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// Lower-case hexadecimal.
std::string ToHex(std::string_view bytes);
inline std::string ToHex(const Sha256Digest& digest) { return ToHex(AsBytes(digest)); }

}  // namespace cairn
