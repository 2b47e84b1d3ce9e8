// One decoder layer: pre-norm rotary attention and a gated MLP.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "attention.h"
#include "panels.h"

struct Range { int begin, end; };
static inline Range share(int n) {  // this thread's output features, in whole blocks
  int t = omp_get_thread_num(), nt = omp_get_num_threads(), blocks = (n + BLOCK - 1) / BLOCK;
  return {std::min(n, blocks * t / nt * BLOCK), std::min(n, blocks * (t + 1) / nt * BLOCK)};
}

struct Linear { const void *weight, *bias, *panels; int32_t n, k; };  // panels: packed copy of weight, or null
struct Layer {
  const float *norm1, *norm2, *q_norm, *k_norm;  // effective float32 scales; q_norm and k_norm may be null
  float eps1, eps2, eps_q, eps_k, scale;
  int32_t heads, kv_heads, head_dim, activation;  // activation: 0 silu, 1 tanh-gelu
  Linear q, k, v, o, gate, up, down;
};

template <class T> static inline float bias_at(const Linear& l, int n) {
  return l.bias ? to_float(((const T*)l.bias)[n]) : 0.0f;
}

template <class S> static inline float inv_rms(const S* x, int n, float eps) {
  vf total = {};
  for (int i = 0; i < n; i += LANES) { vf v = load(x + i); total += v * v; }
  return 1.0f / std::sqrt(sum(total) / n + eps);
}
template <class T, class S> static inline void norm_row(const S* x, const float* scale, float eps, int n, float* out) {
  float r = inv_rms(x, n, eps);
  for (int i = 0; i < n; i++) out[packed<T>(i)] = to_float(x[i]) * r * scale[i];
}
// out[m][OUTPUTS] of up to CHUNK rows and up to OUTPUTS row-major outputs.
enum { OUTPUTS = 64 };
template <class T>
__attribute__((noinline)) static void row_major_part(const T* w, int count, const float* x, int rows, int k, float* out) {
  dots(w, k, 0, count, x, k, rows, k, [&](int m, int n, float v) { out[m * OUTPUTS + n] = v; });
}
template <class T, class F> static void linear(const Linear& l, const float* x, int M, F sink) {
  Range r = share(l.n);
  auto add_bias = [&](int m, int n, float v) { sink(m, n, v + bias_at<T>(l, n)); };
  if (l.panels) return panel_dots((const T*)l.panels, r.begin, r.end, x, M, l.k, add_bias);
  float out[CHUNK * OUTPUTS];
  for (int first = 0; first < M; first += CHUNK)
    for (int n = r.begin; n < r.end; n += OUTPUTS) {
      int rows = std::min<int>(CHUNK, M - first), count = std::min<int>(OUTPUTS, r.end - n);
      row_major_part((const T*)l.weight + (int64_t)n * l.k, count, x + (int64_t)first * l.k, rows, l.k, out);
      for (int m = 0; m < rows; m++)
        for (int j = 0; j < count; j++) add_bias(first + m, n + j, out[m * OUTPUTS + j]);
    }
}

template <class T>
static void rotate_head(const float* x, const float* norm, float eps, const T* cos, const T* sin, int D, float* out) {
  float r = norm ? inv_rms(x, D, eps) : 1.0f, y[1024];
  for (int i = 0; i < D; i++) y[i] = norm ? x[i] * r * norm[i] : x[i];
  for (int i = 0, half = D / 2; i < D; i++)
    out[i] = y[i] * to_float(cos[i]) + (i < half ? -y[i + half] : y[i - half]) * to_float(sin[i]);
}

// x [M, H] -> q [M, heads, D] packed float32, scaled; kv [2, M, kv_heads, D]. cos, sin [M, D] with row stride cs.
template <class T>
static void attn_in(const Layer* L, const T* x, const T* cos, const T* sin, int64_t cs, float* q, T* kv, int M, int nt) {
  int H = L->q.k, D = L->head_dim, wide = L->q.n + 2 * L->k.n;
  float* xs = main_scratch.need((size_t)M * (H + wide));
  float* proj = xs + (size_t)M * H;
#pragma omp parallel num_threads(nt)
  {
    for (int m = omp_get_thread_num(); m < M; m += omp_get_num_threads())
      norm_row<T>(x + (size_t)m * H, L->norm1, L->eps1, H, xs + (size_t)m * H);
#pragma omp barrier
    int at = 0;
    for (const Linear* l : {&L->q, &L->k, &L->v}) {
      linear<T>(*l, xs, M, [&](int m, int n, float v) { proj[(size_t)m * wide + at + n] = v; });
      at += l->n;
    }
#pragma omp barrier
    float y[1024];
    int all = L->heads + 2 * L->kv_heads, tasks = M * all;
    for (int task = omp_get_thread_num(); task < tasks; task += omp_get_num_threads()) {
      int m = task / all, h = task % all;
      const float* p = proj + (size_t)m * wide + h * D;
      if (h < L->heads) {
        rotate_head(p, L->q_norm, L->eps_q, cos + m * cs, sin + m * cs, D, y);
        float* out = q + ((size_t)m * L->heads + h) * D;
        for (int i = 0; i < D; i++) { T t; store(&t, y[i]); out[packed<T>(i)] = to_float(t) * L->scale; }
      } else if (h < L->heads + L->kv_heads) {
        rotate_head(p, L->k_norm, L->eps_k, cos + m * cs, sin + m * cs, D, y);
        T* out = kv + ((size_t)m * L->kv_heads + h - L->heads) * D;
        for (int i = 0; i < D; i++) store(out + i, y[i]);
      } else {
        T* out = kv + (((size_t)M + m) * L->kv_heads + h - L->heads - L->kv_heads) * D;
        for (int i = 0; i < D; i++) store(out + i, p[i]);
      }
    }
  }
}

// q from attn_in, keys and values [R, kv_heads, kv, D], residual x [M = R * Q, H] -> out [M, H]: attention, then the MLP.
template <class T>
static void attn_out(const Layer* L, const float* q, const View* keys, const View* values, const Mask* mask, const T* x,
                     T* out, int R, int Q, int kv, int nt) {
  int M = R * Q, H = L->q.k, D = L->head_dim, I = L->gate.n, A = L->heads * D, group = L->heads / L->kv_heads;
  float* ao = main_scratch.need((size_t)M * (A + 2 * H + 2 * I));
  float *h = ao + (size_t)M * A, *hn = h + (size_t)M * H, *g = hn + (size_t)M * H, *u = g + (size_t)M * I;
  int rows = group * Q;  // query rows per KV head; ordered by query, then head
  int step = R * L->kv_heads * ((rows + 3) / 4) >= 2 * nt ? 4 : 1, chunks = (rows + step - 1) / step;
#pragma omp parallel num_threads(nt)
  {
    for (int task = omp_get_thread_num(); task < R * L->kv_heads * chunks; task += omp_get_num_threads()) {
      int c = task % chunks, kh = task / chunks % L->kv_heads, r = task / chunks / L->kv_heads;
      const float* qs[4]; float* os[4]; int64_t at[4]; int visible[4];
      int count = std::min(step, rows - c * step);
      for (int i = 0; i < count; i++) {
        int t = (c * step + i) / group, head = kh * group + (c * step + i) % group;
        size_t offset = ((size_t)(r * Q + t) * L->heads + head) * D;
        qs[i] = q + offset; os[i] = ao + offset;
        at[i] = r * mask->row + t * mask->query;
        visible[i] = kv - Q + t + 1;
      }
      const T* ks = (const T*)keys->data + r * keys->row + kh * keys->head;
      const T* vs = (const T*)values->data + r * values->row + kh * values->head;
      if (count == 4) attend_rows<T, 4>(D, qs, ks, keys->pos, vs, values->pos, *mask, at, visible, kv, os);
      else for (int i = 0; i < count; i++)
        attend_rows<T, 1>(D, qs + i, ks, keys->pos, vs, values->pos, *mask, at + i, visible + i, kv, os + i);
    }
#pragma omp barrier
    linear<T>(L->o, ao, M, [&](int m, int n, float v) { h[(size_t)m * H + n] = v + to_float(x[(size_t)m * H + n]); });
#pragma omp barrier
    for (int m = omp_get_thread_num(); m < M; m += omp_get_num_threads())
      norm_row<T>(h + (size_t)m * H, L->norm2, L->eps2, H, hn + (size_t)m * H);
#pragma omp barrier
    linear<T>(L->gate, hn, M, [&](int m, int n, float v) { g[(size_t)m * I + n] = v; });
    linear<T>(L->up, hn, M, [&](int m, int n, float v) { u[(size_t)m * I + packed<T>(n)] = v; });
    Range r = share(I);
    for (int m = 0; m < M; m++)
      for (int n = r.begin; n < r.end; n += BLOCK) {
        float y[BLOCK], *up = u + (size_t)m * I + n;
        for (int i = 0; i < BLOCK; i += LANES) {
          vf a = load(g + (size_t)m * I + n + i);
          vf z = L->activation ? 1.5957691216f * (a + 0.044715f * a * a * a) : a;
          save(y + i, a / (1.0f + vexp(-z)));
        }
        for (int i = 0; i < BLOCK; i++) up[packed<T>(i)] *= y[i];
      }
#pragma omp barrier
    linear<T>(L->down, u, M, [&](int m, int n, float v) { store(out + (size_t)m * H + n, v + h[(size_t)m * H + n]); });
  }
}
