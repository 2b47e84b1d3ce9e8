// CPU kernels of one decoder layer: weights stay in the model's dtype, every sum is float32.
//
// Each output element is summed in an order that depends only on its own row, never on how many rows share the call:
// a token's logits are bit-identical whether it is verified alone or among drafts.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "panels.h"
#include "vectors.h"

enum { TILE_ROWS = 8 };  // a tile of row-major weights covers 8 output features

// out[n][m] = w[n] . x[m] for NB weight rows; rows from `rows` on repeat the last one, so that every sum is made by a
// full tile and no remainder code adds in another order.
template <class T, int NB, int MB>
static inline void dot_tile(const T* w, int64_t ws, int rows, const float* x, int64_t xs, int k, float out[NB][MB]) {
  static_assert(NB * MB % 2 == 0 && NB * MB >= 6, "tiles are summed four at a time");
  const T* wn[NB];
  for (int n = 0; n < NB; n++) wn[n] = w + std::min(n, rows - 1) * ws;
  vf acc[NB][MB] = {};
  for (int i = 0; i < k; i += BLOCK) {
    for (int n = 0; n < NB; n++) __builtin_prefetch(wn[n] + TILE_ROWS * ws + i);  // the next tile: worth 40 % at 4 rows
    for (int v = 0; v < VECS; v++) {
      vf xv[MB];
      for (int m = 0; m < MB; m++) xv[m] = load(x + m * xs + i + v * LANES);
      for (int n = 0; n < NB; n++) {
        vf wv = read_part(wn[n] + i, v);
        for (int m = 0; m < MB; m++) acc[n][m] += wv * xv[m];
      }
    }
  }
  const vf* flat = &acc[0][0];
  float* to = &out[0][0];
  for (int i = 0; i < NB * MB; i += 4) {
    int j = std::min(i, NB * MB - 4);
    v4 s = sum4(flat[j], flat[j + 1], flat[j + 2], flat[j + 3]);
    memcpy(to + j, &s, sizeof s);
  }
}

template <class T, int NB, int MB, class F>
static inline void dot_rows(const T* w, int64_t ws, int n0, int rows, const float* x, int64_t xs, int m0, int k, F sink) {
  float out[NB][MB];
  for (int n = 0; n < rows; n += NB) {
    dot_tile<T, NB, MB>(w + n * ws, ws, rows - n, x, xs, k, out);
    for (int a = 0; a < std::min(NB, rows - n); a++)
      for (int m = 0; m < MB; m++) sink(m0 + m, n0 + n + a, out[a][m]);
  }
}

// sink(m, n, x[m] . w[n]) for m < M and begin <= n < end; w has row stride ws, packed x has row stride xs.
template <class T, class F>
static void dots(const T* w, int64_t ws, int begin, int end, const float* x, int64_t xs, int M, int k, F sink) {
  for (int first = 0; first < M; first += CHUNK)
    for (int n = begin; n < end; n += TILE_ROWS) {
      int rows = std::min<int>(TILE_ROWS, end - n), last = std::min<int>(M, first + CHUNK);
      const T* wn = w + n * ws;
      for (int m = first; m < last;) {
        const float* xm = x + m * xs;
        int left = last - m;
        if (left == 1) { dot_rows<T, 8, 1>(wn, ws, n, rows, xm, xs, m, k, sink); m += 1; }
        else if (left == 2) { dot_rows<T, 4, 2>(wn, ws, n, rows, xm, xs, m, k, sink); m += 2; }
        else if (left == 3) { dot_rows<T, 2, 3>(wn, ws, n, rows, xm, xs, m, k, sink); m += 3; }
        else { dot_rows<T, 2, 4>(wn, ws, n, rows, xm, xs, m, k, sink); m += 4; }
      }
    }
}

struct Range { int begin, end; };
static inline Range share(int n) {  // this thread's output features, in whole blocks
  int t = omp_get_thread_num(), nt = omp_get_num_threads(), blocks = (n + BLOCK - 1) / BLOCK;
  return {std::min(n, blocks * t / nt * BLOCK), std::min(n, blocks * (t + 1) / nt * BLOCK)};
}

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
static thread_local Scratch main_scratch, score_scratch;

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
template <class T, class F> static void linear(const Linear& l, const float* x, int M, F sink) {
  Range r = share(l.n);
  auto add_bias = [&](int m, int n, float v) { sink(m, n, v + bias_at<T>(l, n)); };
  if (l.panels) panel_dots((const T*)l.panels, r.begin, r.end, x, M, l.k, add_bias);
  else dots((const T*)l.weight, l.k, r.begin, r.end, x, l.k, M, l.k, add_bias);
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

struct View { const void* data; int64_t row, head, pos; };        // strides in elements: batch row, KV head, position
struct Mask { const void* data; int64_t row, query; int32_t kind, pad; };  // kind: 0 causal by position, 1 bool, 2 float32, 3 bfloat16

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

// MB query rows that share one KV head: out rows are packed and hold sum_j softmax(q . k_j)_j v_j.
template <class T, int MB>
static void attend_rows(const Layer* L, const float* const q[MB], const T* keys, int64_t ks, const T* values, int64_t vs,
                        const Mask& mask, const int64_t* at, const int* visible, int kv, float* const out[MB]) {
  int D = L->head_dim, end = 0;
  for (int m = 0; m < MB; m++) end = std::max(end, last_visible(mask, at[m], kv, visible[m]));
  int width = (end + LANES - 1) / LANES * LANES;
  float* xs = score_scratch.need((size_t)MB * (width + D));
  float* s = xs + MB * D;
  for (int m = 0; m < MB; m++) memcpy(xs + m * D, q[m], D * 4);
  dots(keys, ks, 0, end, xs, D, MB, D, [&](int m, int j, float v) { s[(size_t)m * width + j] = v; });
  for (int m = 0; m < MB; m++) {
    float* p = s + (size_t)m * width;
    float top = -INFINITY;
    for (int j = 0; j < end; j++) { p[j] = masked(mask, at[m], j, visible[m], p[j]); top = std::max(top, p[j]); }
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
          if (p[j] == 0.0f) continue;  // an unwritten slot may hold anything, even NaN
          for (int b = 0; b < count.value; b++) {
            vf v[VECS];
            read_block(values + j * vs + d + b * BLOCK, v);
            for (int i = 0; i < VECS; i++) acc[b][i] += p[j] * v[i];
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
      if (count == 4) attend_rows<T, 4>(L, qs, ks, keys->pos, vs, values->pos, *mask, at, visible, kv, os);
      else for (int i = 0; i < count; i++)
        attend_rows<T, 1>(L, qs + i, ks, keys->pos, vs, values->pos, *mask, at + i, visible + i, kv, os + i);
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

template <class T> static void linear_rows(const Linear* l, const T* x, T* out, int M, int nt) {
  float* xs = main_scratch.need((size_t)M * l->k);
#pragma omp parallel num_threads(nt)
  {
    for (int m = omp_get_thread_num(); m < M; m += omp_get_num_threads())
      for (int i = 0; i < l->k; i++) xs[(size_t)m * l->k + packed<T>(i)] = to_float(x[(size_t)m * l->k + i]);
#pragma omp barrier
    linear<T>(*l, xs, M, [&](int m, int n, float v) { store(out + (size_t)m * l->n + n, v); });
  }
}

template <class T> static void norm_rows(const float* scale, float eps, int n, const T* x, T* out, int M) {
  for (int m = 0; m < M; m++, x += n, out += n) {
    float r = inv_rms(x, n, eps);
    for (int i = 0; i < n; i++) store(out + i, to_float(x[i]) * r * scale[i]);
  }
}

#define EXPORT(T, SUFFIX)                                                                                               \
  extern "C" void attn_in_##SUFFIX(const Layer* L, const T* x, const T* cos, const T* sin, int64_t cs, float* q, T* kv,  \
                                   int M, int nt) { attn_in<T>(L, x, cos, sin, cs, q, kv, M, nt); }                     \
  extern "C" void attn_out_##SUFFIX(const Layer* L, const float* q, const View* k, const View* v, const Mask* mask,      \
                                    const T* x, T* out, int R, int Q, int kv, int nt) {                                 \
    attn_out<T>(L, q, k, v, mask, x, out, R, Q, kv, nt); }                                                              \
  extern "C" void linear_##SUFFIX(const Linear* l, const T* x, T* out, int M, int nt) { linear_rows<T>(l, x, out, M, nt); } \
  extern "C" void pack_##SUFFIX(const T* w, T* panels, int n, int k) { pack<T>(w, panels, n, k); }                         \
  extern "C" void norm_##SUFFIX(const float* s, float eps, int n, const T* x, T* out, int M) { norm_rows<T>(s, eps, n, x, out, M); }
EXPORT(float, f32)
EXPORT(bf16, bf16)
