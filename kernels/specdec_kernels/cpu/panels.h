// Weights [n, k] repacked so that one load gives the same input element of 16 outputs: no horizontal sums, and the
// inputs are broadcast. Every output is one chain of k fused multiply-adds, whatever the shape of the tile it is in.
#pragma once
#include <algorithm>
#include <type_traits>

#include "vectors.h"

enum { CHUNK = 64 };  // rows of x that stay in the second-level cache while the weights stream by
enum { AHEAD = 96 };  // panel rows to prefetch: 3 KiB of bfloat16

// panels [ceil(n / 16)][k][16]: rows follow the order of packed inputs, so outputs come out in packed order too.
template <class T> static void pack(const T* w, T* panels, int n, int k) {
#pragma omp parallel for
  for (int p = 0; p < (n + BLOCK - 1) / BLOCK; p++)
    for (int i = 0; i < k; i++)
      for (int j = 0; j < BLOCK; j++) {
        int o = p * BLOCK + j;
        panels[((int64_t)p * k + packed<T>(i)) * BLOCK + j] = o < n ? w[(int64_t)o * k + i] : T{};
      }
}

enum { WIDE = LANES / 8, GROUP = 4 * WIDE * BLOCK };  // outputs of a group; enough accumulators to hide the latency of an addition

// out[m][GROUP]: NP blocks of 16 outputs, x[m] . w of NP panels that lie one after another.
template <class T, int NP, int MB, bool ONCE>
static inline void panel_tile(const T* w, const float* x, int k, float* out) {
  vf acc[NP][MB][VECS] = {};
  const int64_t panel = (int64_t)k * BLOCK;
#pragma GCC unroll 2
  for (int i = 0; i < k; i++) {
    for (int p = 0; p < NP; p++) {
      const T* row = w + p * panel + i * BLOCK;
      // weights that are read once must not push everything else out of the caches
      if (ONCE) __builtin_prefetch(row + AHEAD * BLOCK, 0, 0);
      else __builtin_prefetch(row + AHEAD * BLOCK);
      vf wv[VECS];
      read_block(row, wv);
      for (int m = 0; m < MB; m++) {
        vf xv = x[(int64_t)m * k + i] - (vf){};  // a plain broadcast: unlike + 0, - 0 changes no value
        for (int v = 0; v < VECS; v++) acc[p][m][v] += wv[v] * xv;
      }
    }
  }
  for (int m = 0; m < MB; m++)
    for (int p = 0; p < NP; p++)
      for (int v = 0; v < VECS; v++) save(out + m * GROUP + p * BLOCK + v * LANES, acc[p][m][v]);
}

template <class T, bool ONCE, int NP, int MB>
static void panel_rows(const T* panels, int count, const float* x, int k, float* out) {
  int n = 0;
  for (; n + NP * BLOCK <= count; n += NP * BLOCK) panel_tile<T, NP, MB, ONCE>(panels + (int64_t)n * k, x, k, out + n);
  for (; n < count; n += BLOCK) panel_tile<T, 1, MB, ONCE>(panels + (int64_t)n * k, x, k, out + n);
}

// out[m][GROUP] of up to 6 rows of x and up to GROUP outputs: the only place where tiles are instantiated.
template <class T, bool ONCE>
__attribute__((noinline)) static void panel_part(const T* panels, int count, const float* x, int rows, int k, float* out) {
  switch (rows) {
    case 1: return panel_rows<T, ONCE, 4 * WIDE, 1>(panels, count, x, k, out);
    case 2: return panel_rows<T, ONCE, 2 * WIDE, 2>(panels, count, x, k, out);
    case 3: return panel_rows<T, ONCE, WIDE, 3>(panels, count, x, k, out);  // two panels would spill a sum
    case 4: return panel_rows<T, ONCE, WIDE, 4>(panels, count, x, k, out);
    case 5: return panel_rows<T, ONCE, WIDE, 5>(panels, count, x, k, out);
    default: return panel_rows<T, ONCE, WIDE, 6>(panels, count, x, k, out);
  }
}

// Rows of the next part when `left` are left: even parts of at most 6, or full ones where one or two rows remain.
static inline int part_rows(int left) {
  int parts = (left + 5) / 6;
  return left > 6 && (left % 6 == 1 || left % 6 == 2) ? 6 : (left + parts - 1) / parts;
}

// sink(m, n, block) for m < M and the blocks of 16 outputs from begin (a multiple of 16) on, the last one perhaps padded
// beyond end; block holds x[m] . w[n + i] in packed order; packed x has row stride k.
template <class T, class F>
static void panel_blocks(const T* panels, int begin, int end, const float* x, int M, int k, F sink) {
  alignas(64) float out[6 * GROUP];
  for (int first = 0; first < M; first += CHUNK) {
    int last = std::min<int>(M, first + CHUNK);
    for (int n = begin; n < end; n += GROUP) {
      int count = std::min<int>(end - n, GROUP);
      for (int m = first, height; m < last; m += height) {
        height = part_rows(last - m);
        auto part = height == M ? panel_part<T, true> : panel_part<T, false>;
        part(panels + (int64_t)n * k, count, x + (int64_t)m * k, height, k, out);
        for (int i = 0; i < height; i++)
          for (int j = 0; j < count; j += BLOCK) {
            vf block[VECS];
            for (int v = 0; v < VECS; v++) block[v] = load(out + i * GROUP + j + v * LANES);
            sink(m + i, n + j, block);
          }
      }
    }
  }
}

// sink(m, n, x[m] . w[n]) for m < M and begin <= n < end, in natural order.
template <class T, class F>
static void panel_dots(const T* panels, int begin, int end, const float* x, int M, int k, F sink) {
  panel_blocks(panels, begin, end, x, M, k, [&](int m, int n, const vf block[VECS]) {
    float values[BLOCK];
    for (int v = 0; v < VECS; v++) save(values + v * LANES, block[v]);
    for (int j = 0, count = std::min<int>(BLOCK, end - n); j < count; j++) sink(m, n + j, values[packed<T>(j)]);
  });
}
