#include "base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "absl/strings/escaping.h"
#include "base/log.h"

namespace cairn {
namespace {

// Looked up once: OpenSSL's search by name costs several times what a short hash does.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm;
}

}  // namespace

void Sha256::Destroy(evp_md_ctx_st* context) { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CHECK(context_.valid());
  CHECK_EQ(EVP_DigestInit_ex2(context_.get(), Algorithm(), nullptr), 1);
}

Sha256::Sha256(const Sha256& other) : context_(EVP_MD_CTX_new()) {
  CHECK(context_.valid());
  CHECK_EQ(EVP_MD_CTX_copy_ex(context_.get(), other.context_.get()), 1);
}

Sha256& Sha256::operator=(const Sha256& other) {
  if (this != &other) CHECK_EQ(EVP_MD_CTX_copy_ex(context_.get(), other.context_.get()), 1);
  return *this;
}

void Sha256::Update(std::span<const std::byte> bytes) {
  CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), 1);
}

void Sha256::Update(std::string_view bytes) { Update(std::as_bytes(std::span(bytes))); }

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  CHECK_EQ(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr), 1);
  CHECK_EQ(EVP_DigestInit_ex2(context_.get(), nullptr, nullptr), 1);
  return digest;
}

Sha256Digest HashSha256(std::span<const std::byte> bytes) {
  // OpenSSL's context costs more than a short hash; Finish leaves it as new.
  thread_local Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

Sha256Digest HashSha256(std::string_view bytes) {
  return HashSha256(std::as_bytes(std::span(bytes)));
}

Sha256Digest HmacSha256(std::string_view key, std::string_view message) {
  Sha256Digest code;
  unsigned int size = 0;
  // A null key means "the previous one" to OpenSSL, so an empty key points at something.
  const char* key_data = key.empty() ? "" : key.data();
  CHECK(HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()),
             reinterpret_cast<const uint8_t*>(message.data()), message.size(), code.data(),
             &size) != nullptr);
  CHECK_EQ(size, code.size());
  return code;
}

bool ConstantTimeEqual(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string ToHex(std::string_view bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

}  // namespace cairn
