// Flags that several verbs share.
// Thread: the main thread.
#pragma once

#include "base/flag_table.h"
#include "cli/offline.h"

namespace cairn {

void AddEngineFlags(EngineFlags* flags, FlagTable* table);
void AddSamplingFlags(SamplingFlags* flags, FlagTable* table);

}  // namespace cairn
