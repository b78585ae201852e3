/* SPDX-License-Identifier: Apache-2.0
 *
 * lmnative: language models behind a stable C ABI. This is the one header to include; C++ has
 * lmnative.hpp on top of it. Read common.h first: the rules that hold for every function.
 */
#ifndef LMNATIVE_LMNATIVE_H_
#define LMNATIVE_LMNATIVE_H_

#include "lmnative/common.h"
#include "lmnative/engine.h"
#include "lmnative/graph.h"
#include "lmnative/model.h"
#include "lmnative/pool.h"
#include "lmnative/server.h"
#include "lmnative/session.h"
#include "lmnative/session_value.h"
#include "lmnative/tensor.h"
#include "lmnative/tokenizer.h"
#include "lmnative/version.h"

#endif /* LMNATIVE_LMNATIVE_H_ */
