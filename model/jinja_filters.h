// The two halves of the table of filters.
// Thread: any.
#pragma once

#include <span>

#include "model/jinja_functions.h"

namespace cairn {

std::span<const JinjaFunction> JinjaTextFilters();
std::span<const JinjaFunction> JinjaSequenceFilters();

}  // namespace cairn
