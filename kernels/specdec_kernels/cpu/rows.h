// Rows of logits [n]: their tops, softmax weights and draws, the fast forms of those in specdec/verify.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>
#include "vectors.h"

enum { ROW_BLOCK = 256 };  // weights are summed in blocks; must equal BLOCK in specdec/verify/row_law.py

typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint16_t h8 __attribute__((vector_size(16)));

static inline v8 load8(const float* p) { v8 v; memcpy(&v, p, sizeof v); return v; }
static inline v8 load8(const bf16* p) {
  h8 h; memcpy(&h, p, sizeof h);
  return (v8)(__builtin_convertvector(h, i8) << 16);
}

enum { ROW_ALONE = 16384 };  // work on fewer numbers is not worth a second thread

struct Top { float value; bool nan; int64_t token; };

// Maximum of the numbers that are not NaN, and its lowest index.
template <class T> static Top row_top(const T* x, int64_t n) {
  v8 best[4]; i8 bad = {};
  for (v8& b : best) b = (v8){} - INFINITY;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (int j = 0; j < 4; j++) {
      v8 v = load8(x + i + 8 * j);
      bad |= v != v;
      best[j] = v > best[j] ? v : best[j];
    }
  float top = -INFINITY; bool nan = false;
  for (int j = 0; j < 4; j++) for (int l = 0; l < 8; l++) top = best[j][l] > top ? best[j][l] : top;
  for (int l = 0; l < 8; l++) nan |= bad[l] != 0;
  for (; i < n; i++) { float v = to_float(x[i]); nan |= v != v; top = v > top ? v : top; }
  int64_t token = 0;
  for (; token + 32 <= n; token += 32) {
    i8 hit = {};
    for (int j = 0; j < 4; j++) hit |= load8(x + token + 8 * j) == (v8){} + top;
    int any = 0;
    for (int l = 0; l < 8; l++) any |= hit[l];
    if (any) break;
  }
  while (token < n && to_float(x[token]) != top) token++;
  return {top, nan, token < n ? token : 0};
}

// Tops of rows; the maximum is NaN where the row holds one. Threads share out the rows, or the parts of a single one.
template <class T>
static void row_tops(const T* x, int64_t stride, int64_t rows, int64_t n, float* maxima, int64_t* tokens, int nt) {
  if (rows * n <= ROW_ALONE) nt = 1;
  int64_t parts = rows == 1 ? nt : 1, part = (n + parts - 1) / parts;
  std::vector<Top> tops(rows * parts);
#pragma omp parallel for num_threads(nt) schedule(static) if (nt > 1)
  for (int64_t i = 0; i < rows * parts; i++) {
    int64_t begin = std::min(n, i % parts * part);
    tops[i] = row_top(x + i / parts * stride + begin, std::min(n, begin + part) - begin);
    tops[i].token += begin;
  }
  for (int64_t r = 0; r < rows; r++) {
    Top best = tops[r * parts];
    for (int64_t i = r * parts + 1; i < (r + 1) * parts; i++) {
      if (tops[i].value > best.value) { best.value = tops[i].value; best.token = tops[i].token; }
      best.nan |= tops[i].nan;
    }
    maxima[r] = best.nan ? NAN : best.value;
    tokens[r] = best.token;
  }
}

static inline v8 fma8(v8 a, v8 b, v8 c) {
  for (int l = 0; l < 8; l++) c[l] = __builtin_fmaf(a[l], b[l], c[l]);
  return c;
}

// exp of x <= 0 within 1 ULP, the method of SLEEF's expf.
static inline v8 exp8(v8 x) {
  v8 scaled = x * 1.44269504088896340736f, whole;
  for (int l = 0; l < 8; l++) whole[l] = __builtin_rintf(scaled[l]);
  v8 s = fma8(whole, (v8){} - 0.693145751953125f, x);
  s = fma8(whole, (v8){} - 1.428606765330187045e-06f, s);
  static const float terms[] = {0.00139304355252534151077271f, 0.00833336077630519866943359f,
                                0.0416664853692054748535156f, 0.166666671633720397949219f, 0.5f};
  v8 u = (v8){} + 0.000198527617612853646278381f;
#pragma GCC unroll 5
  for (float term : terms) u = fma8(u, s, (v8){} + term);
  u = 1.0f + fma8(s * s, u, s);
  i8 q = __builtin_convertvector(whole, i8), half = q >> 1;
  u = u * (v8)((half + 127) << 23) * (v8)((q - half + 127) << 23);
  return x < -104.0f ? (v8){} : u;
}

// One block of weights exp((x - maximum) / temperature), count <= ROW_BLOCK; returns their sum.
template <class T> static float block_weights(const T* x, int64_t count, float maximum, float temperature, float* out) {
  v8 sums = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    v8 w = exp8((load8(x + i) - maximum) / temperature);
    memcpy(out + i, &w, sizeof w);
    sums += load8(out + i);
  }
  float sum = 0;
  for (; i < count; i++) sum += out[i] = exp8((v8){} + (to_float(x[i]) - maximum) / temperature)[0];
  for (int l = 0; l < 8; l++) sum += sums[l];
  return sum;
}

template <class T>
static void row_weights(const T* x, int64_t n, float maximum, float temperature, float* weights, double* masses, int nt) {
#pragma omp parallel for num_threads(nt) schedule(static) if (nt > 1 && n > ROW_ALONE)
  for (int64_t first = 0; first < n; first += ROW_BLOCK)
    masses[first / ROW_BLOCK] =
        block_weights(x + first, n - first < ROW_BLOCK ? n - first : ROW_BLOCK, maximum, temperature, weights + first);
}

// The first token whose cumulative weight exceeds u of the total; -1 if all weights are 0. ``block_of(b, size)`` gives
// the weights of a block.
template <class F> static int64_t row_draw(int64_t n, const double* masses, double u, F block_of) {
  int64_t blocks = (n + ROW_BLOCK - 1) / ROW_BLOCK, block = 0;
  double total = 0, below = 0;
  for (int64_t b = 0; b < blocks; b++) total += masses[b];
  double goal = u * total;
  for (; block < blocks && below + masses[block] <= goal; block++) below += masses[block];
  bool chosen = block < blocks;
  double inside = 0;
  for (block -= !chosen; block >= 0; block--, chosen = false) {
    int64_t first = block * ROW_BLOCK, size = n - first < ROW_BLOCK ? n - first : ROW_BLOCK;
    const float* w = block_of(block, size);
    for (int64_t i = 0; chosen && i < size; i++) {
      inside += w[i];
      if (inside + below > goal && w[i] > 0) return first + i;
    }
    // rounding left the goal just past the block's own sum: the last token with mass is the right one
    for (int64_t i = size - 1; i >= 0; i--) if (w[i] > 0) return first + i;
  }
  return -1;
}

// A draw that keeps nothing but the sums of the blocks.
template <class T> static int64_t row_sample(const T* x, int64_t n, float maximum, float temperature, double u, int nt) {
  std::vector<double> masses((n + ROW_BLOCK - 1) / ROW_BLOCK);
  auto weigh = [&](int64_t b, float* held) {
    int64_t first = b * ROW_BLOCK, size = n - first < ROW_BLOCK ? n - first : ROW_BLOCK;
    return block_weights(x + first, size, maximum, temperature, held);
  };
#pragma omp parallel for num_threads(nt) schedule(static) if (nt > 1 && n > ROW_ALONE)
  for (int64_t b = 0; b < (int64_t)masses.size(); b++) { float held[ROW_BLOCK]; masses[b] = weigh(b, held); }
  float held[ROW_BLOCK];
  return row_draw(n, masses.data(), u, [&](int64_t b, int64_t) { weigh(b, held); return held; });
}

#define EXPORT_ROWS(T, SUFFIX)                                                                                      \
  extern "C" void row_tops_##SUFFIX(const T* x, int64_t stride, int64_t rows, int64_t n, float* maxima, int64_t* tokens, int nt) { \
    row_tops(x, stride, rows, n, maxima, tokens, nt); }                                                            \
  extern "C" void row_weights_##SUFFIX(const T* x, int64_t n, float m, float t, float* weights, double* masses, int nt) { \
    row_weights(x, n, m, t, weights, masses, nt); }                                                                \
  extern "C" int64_t row_sample_##SUFFIX(const T* x, int64_t n, float m, float t, double u, int nt) {                \
    return row_sample(x, n, m, t, u, nt); }
EXPORT_ROWS(float, f32)
EXPORT_ROWS(bf16, bf16)
extern "C" int64_t row_draw_f32(const float* weights, int64_t n, const double* masses, double u) {
  return row_draw(n, masses, u, [&](int64_t block, int64_t) { return weights + block * ROW_BLOCK; });
}
