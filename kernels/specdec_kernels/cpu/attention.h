// Attention of a few query rows over the keys and values of one KV head.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "dots.h"

static inline vf vexp(vf x) {  // exp for x <= 0 (softmax) and moderate x, error < 2 ulp; -inf gives 0
  x = x < -87.0f ? (vf){} - 87.5f : (x > 88.0f ? (vf){} + 88.0f : x);
  vf t = x * 1.44269504f;
  vi n = __builtin_convertvector(t + (t < 0.0f ? (vf){} - 0.5f : (vf){} + 0.5f), vi);
  vf f = __builtin_convertvector(n, vf);
  vf r = x - f * 0.693359375f + f * 2.12194440e-4f;
  vf p = (vf){} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f; p = p * r + 8.3334519073e-3f; p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f; p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  vf e = p * (vf)((n + 127) << 23);
  return x <= -87.0f ? (vf){} : e;
}

struct Scratch {  // grows, never shrinks; one per calling thread
  float* data = nullptr; size_t size = 0;
  float* need(size_t n) {
    if (n > size) { free(data); size = n + n / 2; data = (float*)aligned_alloc(64, (size * 4 + 63) / 64 * 64); }
    return data;
  }
  ~Scratch() { free(data); }
};
static thread_local Scratch main_scratch, score_scratch, norm_scratch, kept_scratch;

struct View { const void* data; int64_t row, head, pos; };        // strides in elements: batch row, KV head, position
struct Mask {
  const void* data;
  int64_t row, query;
  int32_t kind, pad;  // kind: 0 causal by position, 1 bool, 2 float32, 3 bfloat16
};

static inline float masked(const Mask& k, int64_t at, int j, int visible, float s) {
  if (k.kind == 0) return j < visible ? s : -INFINITY;
  if (k.kind == 1) return ((const uint8_t*)k.data)[at + j] ? s : -INFINITY;
  if (k.kind == 2) return s + ((const float*)k.data)[at + j];
  return s + to_float(((const bf16*)k.data)[at + j]);
}
static inline int last_visible(const Mask& k, int64_t at, int kv, int visible) {
  if (k.kind == 0) return visible;
  if (k.kind != 1) return kv;
  const uint8_t* p = (const uint8_t*)k.data + at;
  while (kv > 0 && !p[kv - 1]) kv--;
  return kv;
}

// MB query rows that share one KV head: out rows are packed and hold sum_j softmax(q . k_j)_j v_j over j < kv.
template <class T, int MB>
static void attend_rows(int D, const float* const q[MB], const T* keys, int64_t ks, const T* values, int64_t vs,
                        const Mask& mask, const int64_t* at, const int* visible, int kv, float* const out[MB]) {
  int end = 0;
  for (int m = 0; m < MB; m++) end = std::max(end, last_visible(mask, at[m], kv, visible[m]));
  int width = (end + LANES - 1) / LANES * LANES;
  float* xs = score_scratch.need((size_t)MB * (width + D));
  float* s = xs + MB * D;
  for (int m = 0; m < MB; m++) memcpy(xs + m * D, q[m], D * 4);
  dots(keys, ks, 0, end, xs, D, MB, D, [&](int m, int j, float v) { s[(size_t)m * width + j] = v; });
  for (int m = 0; m < MB; m++) {
    float* p = s + (size_t)m * width;
    float top = -INFINITY;
    for (int j = 0; j < end; j++) {
      float& score = p[j];
      score = masked(mask, at[m], j, visible[m], score);
      top = std::max(top, score);
    }
    for (int j = end; j < width; j++) p[j] = -INFINITY;
    vf total = {};
    for (int j = 0; j < width; j += LANES) {
      vf e = top == -INFINITY ? (vf){} : vexp(load(p + j) - top);
      total += e;
      save(p + j, e);
    }
    float z = sum(total), inv = z > 0 ? 1.0f / z : 0.0f;
    for (int d = 0; d < D;) {
      int blocks = std::min(4, (D - d) / BLOCK);
      vf acc[4][VECS] = {};
      auto add = [&](auto count) {
        for (int j = 0; j < end; j++) {
          float weight = p[j];
          if (weight == 0.0f) continue;  // an unwritten slot may hold anything, even NaN
          for (int b = 0; b < count.value; b++) {
            vf v[VECS];
            read_block(values + j * vs + d + b * BLOCK, v);
            for (int i = 0; i < VECS; i++) acc[b][i] += weight * v[i];
          }
        }
      };
      if (blocks == 4) add(std::integral_constant<int, 4>{});
      else { blocks = 1; add(std::integral_constant<int, 1>{}); }
      for (int b = 0; b < blocks; b++)
        for (int i = 0; i < VECS; i++) save(out[m] + d + b * BLOCK + i * LANES, acc[b][i] * inv);
      d += blocks * BLOCK;
    }
  }
}
