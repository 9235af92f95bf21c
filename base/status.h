// Errors of the world (bad input, no peer, no memory) travel up as absl::Status.
//
// Message style: fixed text first, values last: "block size mismatch: store=16 worker=64".
// Bugs are not errors of the world: use CHECK of base/log.h.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expr`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expr)                                                        \
  do {                                                                               \
    if (absl::Status cairn_status = (expr); !cairn_status.ok()) return cairn_status; \
  } while (false)

// Assigns the value of `expr`, an absl::StatusOr, to `lhs` (which may declare a variable) or
// returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  CAIRN_ASSIGN_OR_RETURN_(CAIRN_CONCAT_(cairn_status_or_, __LINE__), lhs, expr)

#define CAIRN_ASSIGN_OR_RETURN_(var, lhs, expr)  \
  auto var = (expr);                             \
  if (!var.ok()) return std::move(var).status(); \
  lhs = std::move(var).value()
#define CAIRN_CONCAT_(a, b) CAIRN_CONCAT_INNER_(a, b)
#define CAIRN_CONCAT_INNER_(a, b) a##b

namespace cairn {

// The same error with `context` before its message ("tensor blk.0: " + message).
absl::Status Annotate(const absl::Status& status, const std::string& context);

}  // namespace cairn
