/* base/base.h -- foundation of all other folders: status and diagnostics, instruction sets, arenas, text, numbers, tensor types, JSON
 * with positions, files, threads. Other folders include this header only. */
#ifndef NNC_BASE_H
#define NNC_BASE_H

#include "base/status.h"
#include "base/cpu.h"
#include "base/arena.h"
#include "base/text.h"
#include "base/num.h"
#include "base/tensor.h"
#include "base/json.h"
#include "base/weight.h"
#include "base/file.h"
#include "base/given.h"
#include "base/par.h"
#include "base/limits.h"

#endif
