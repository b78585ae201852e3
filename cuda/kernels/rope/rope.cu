// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/rope/rope.cuh"

namespace lmn::cuda {
namespace {

void launch(const RopeWrite& a, ops::LaunchQueue& queue) {
  simt::LaunchShape shape;
  shape.x = blocks(simt::div_up(a.rows, kRopeRows));
  shape.y = static_cast<uint32_t>(a.q_heads + 2 * a.kv.kv_heads);
  shape.threads = kRopeThreads;
  if (a.kv.kv_heads > 0)
    shape.shared_bytes = static_cast<uint32_t>(kRopeRows * (a.head_dim + 1) * sizeof(float));
  simt::launch<rope_write>(queue, shape, a);
}

}  // namespace

void launch_op(const ops::RopeTableArgs& a, ops::LaunchQueue& queue) {
  simt::launch<rope_table>(
      queue, {blocks(simt::div_up(a.rows * (a.rot_dim / 2), kRopeThreads)), 1, 1, kRopeThreads}, a);
}

void launch_op(const ops::RopeArgs& a, ops::LaunchQueue& queue) {
  RopeWrite w{};
  w.rows = a.rows;
  w.q = a.x;
  w.q_stride = a.x_stride;
  w.cos_sin = a.cos_sin;
  w.q_heads = a.heads;
  w.head_dim = static_cast<int32_t>(a.head_dim);
  w.rot_dim = static_cast<int32_t>(a.rot_dim);
  w.style = a.style;
  launch(w, queue);
}

void launch_op(const ops::KvWriteArgs& a, ops::LaunchQueue& queue) {
  RopeWrite w{};
  w.rows = a.rows;
  w.k = a.k;
  w.v = a.v;
  w.k_stride = a.k_stride;
  w.v_stride = a.v_stride;
  w.slots = a.slots;
  w.kv = *a.kv;
  w.head_dim = a.kv->head_dim;
  launch(w, queue);
}

void launch_op(const ops::RopeKvWriteArgs& a, ops::LaunchQueue& queue) {
  RopeWrite w{};
  const int64_t d = a.kv->head_dim;
  w.rows = a.rows;
  w.q = a.qkv;
  w.k = a.qkv + a.heads * d;
  w.v = w.k + a.kv->kv_heads * d;
  w.q_stride = w.k_stride = w.v_stride = (a.heads + 2 * int64_t{a.kv->kv_heads}) * d;
  w.cos_sin = a.cos_sin;
  w.slots = a.slots;
  w.kv = *a.kv;
  w.q_heads = a.heads;
  w.head_dim = a.kv->head_dim;
  w.rot_dim = static_cast<int32_t>(a.rot_dim);
  w.style = a.style;
  launch(w, queue);
}

}  // namespace lmn::cuda
